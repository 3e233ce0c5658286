"""Seeded synthetic speech.

lexicons/ says which words exist, sentences draws texts, speakers draws voices and places, rooms models the acoustics,
recording writes the audio files. emotions and events serve two kinds of classification.
"""
