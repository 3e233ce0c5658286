"""Text: tokenisers, normalising of transcripts, and error counts."""
