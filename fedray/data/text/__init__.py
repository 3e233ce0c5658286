"""Text: tokenisers, scoring rules, and error counts."""
