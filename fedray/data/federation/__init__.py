"""Federations: partitions of a corpus among clients, and which utterances are labelled."""
