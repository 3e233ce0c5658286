"""Fewer bytes on the way: codes for vectors, top-k, and the settings `upload` and `download`."""
