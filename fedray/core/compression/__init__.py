"""Compression of updates and broadcasts: codes for vectors, top-k, and the settings `upload` and `download`."""
