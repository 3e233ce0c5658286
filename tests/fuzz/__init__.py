"""Damaged files for every reader, until the time is over."""
