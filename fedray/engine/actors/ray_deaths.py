"""What Ray raises if it does not start, or for a job whose actor has ended, and why the actor ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ray.exceptions import OutOfMemoryError, RayActorError, RayError

from fedray.core.types import RunError
from fedray.engine.jobs.deaths import Cause, Death, Doomed

DEATHS = (RayActorError, OutOfMemoryError, Doomed)  # what Ray raises for a job whose actor is gone, or must go


def death_of(error: RayError | Doomed) -> Death:
    """The death that one of `DEATHS` reports."""
    if isinstance(error, Doomed):
        return error.death
    if words := eviction(error):
        return Death(Cause.MEMORY, words)
    return Death(Cause.CRASH, " ".join(str(error).partition("class_name")[0].split())[:300])


def uncoloured(error: RayError) -> str:
    """The text of Ray's error, without the colours that it gives to names."""
    return re.sub(r"\x1b\[[\d;]*m", "", str(error))


def eviction(error: BaseException) -> str | None:
    """Why Ray's memory monitor ended an actor, in a line instead of Ray's page of text; None: it did not."""
    if not isinstance(error, OutOfMemoryError):
        return None
    found = re.search(r"[\d.]+ ?GB used / [\d.]+ ?GB limit", str(error))
    used = f" ({found.group()})" if found else ""
    return f"Ray's memory monitor ended it, since its node ran low on memory{used}: lower engine.actors to use less"


@contextmanager
def started_in_time() -> Iterator[None]:
    """RunError: Ray gave up. It waits for itself for half a minute."""
    try:
        yield
    except Exception as error:  # Ray raises no narrower class
        if "timed out during startup" not in str(error):
            raise
        raise RunError(
            "Ray did not start within half a minute: this machine is too busy, or the disk that Python is on too slow; "
            "repeat the command"
        ) from error
