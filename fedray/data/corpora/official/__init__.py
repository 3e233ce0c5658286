"""Readers of corpora in their official layout: one file each."""
