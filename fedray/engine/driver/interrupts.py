"""Ctrl-C and SIGTERM: a run that is watched ends with a checkpoint, and its caller gets an exception."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM ended the work: `kill` sends it, and so do cluster managers before they kill a job."""


@contextmanager
def terminable() -> Iterator[None]:
    """While open, SIGTERM raises Terminated in the main thread."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    with _handled(signal.SIGTERM, terminate):
        yield


@contextmanager
def handler_kept() -> Iterator[None]:
    """Keep the process's handler of SIGTERM: that of Ray prints a stack of C++ and aborts."""
    with _handled(signal.SIGTERM, signal.getsignal(signal.SIGTERM)):
        yield


@contextmanager
def _handled(number: int, handler: Any) -> Iterator[None]:
    """Handle a signal with `handler` while open, then as before. Only the main thread can."""
    before = signal.getsignal(number)
    if before is None or threading.current_thread() is not threading.main_thread():  # None: set by another language
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class Interrupts:
    """Counts Ctrl-C. A KeyboardInterrupt could fall between two statements and be lost; only the third is raised.

    SIGTERM counts as two: the run ends at once, since a cluster manager does not wait for a round.
    """

    def __init__(self) -> None:
        self.count = 0
        self.terminated = False
        self._handled = ExitStack()

    def __enter__(self) -> Interrupts:
        self._handled.enter_context(_handled(signal.SIGTERM, self._terminate))
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._handled.enter_context(_handled(signal.SIGINT, self._add))
        return self

    def __exit__(self, *error: object) -> None:
        self._handled.close()

    def error(self, words: str) -> KeyboardInterrupt:
        """The exception for the caller of a run that they ended."""
        return Terminated(words) if self.terminated else KeyboardInterrupt(words)

    def _add(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 2:
            raise KeyboardInterrupt

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if self.terminated:
            raise Terminated
        self.terminated, self.count = True, 2
