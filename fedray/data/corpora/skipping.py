"""`data.skip_broken` where a reader measures audio: a file that cannot be measured stays in the manifest.

Its length is `UNMEASURED`, so it is read to its end. Computing features meets the same fault again, and leaves the
utterance out by name, as it does with all broken audio.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fedray.data.features.audio import UNMEASURED

SKIP = "set data.skip_broken=true to leave it out"

_skips = ContextVar("skips", default=False)  # no argument of readers: users' corpora have their signature


@contextmanager
def skipping(skip_broken: bool) -> Iterator[None]:
    """Inside, readers keep files that they cannot measure if `skip_broken`."""
    before = _skips.set(skip_broken)
    try:
        yield
    finally:
        _skips.reset(before)


def skips() -> bool:
    """Whether a reader keeps files that it cannot measure. Workers do not know: ask where their results arrive."""
    return _skips.get()


def settled(path: str, length: float | str, remedy: str) -> float:
    """The length of a file, or `UNMEASURED` if it is broken (`length` says why) and may be skipped.

    Raises ValueError for a broken file that may not.
    """
    if isinstance(length, str) and not skips():
        raise ValueError(f"{path}: {length}. {remedy}, or {SKIP}")
    return UNMEASURED if isinstance(length, str) else length
