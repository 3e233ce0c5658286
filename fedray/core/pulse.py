"""Signs of life: long work says how far it is, so that nobody takes it for a hang."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[int, int, str], None]  # (done, of, what)

_LISTENER: ContextVar[Listener] = ContextVar("listener", default=lambda done, of, what: None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """While open, `listener` hears of long work in this thread. It must be fast, since it may hear of every step."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def long_work(what: str, of: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that receives what is done so far, of at most `of`. At the end all of it is done."""
    listener = _LISTENER.get()
    yield lambda done: listener(done, of, what)
    listener(of, of, what)
