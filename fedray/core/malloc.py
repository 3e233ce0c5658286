"""How glibc gets the memory of a process, and gives it back."""

from __future__ import annotations

import ctypes
import sys


def tune(mapped: int, kept: int) -> None:
    """Get at least `mapped` bytes at once from the system, which has them again once they are freed.

    Of what is smaller, up to `kept` freed bytes stay for later use. By default glibc learns both limits from what is
    freed. Has no effect without glibc.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        trim_threshold, mmap_threshold = -1, -3  # from malloc.h
        libc.mallopt(mmap_threshold, mapped)
        libc.mallopt(trim_threshold, kept)
