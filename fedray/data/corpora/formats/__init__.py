"""Readers of lists of utterances in a file: SpeechBrain, NeMo, Kaldi, tables."""
