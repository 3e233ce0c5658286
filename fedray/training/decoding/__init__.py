"""Searches from encoder states to text: greedy, CTC beam search, lexicon, attention."""
