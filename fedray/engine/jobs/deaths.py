"""Why client actors die, and which errors of a job mean that its actor must end. For Ray's errors see `ray_deaths`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fedray.core.exhaustion import exhausted


class Cause(Enum):
    """Why an actor died. The value is the failure reason of the client in training; {} is the number of such deaths."""

    CRASH = "killed its actor {} times (out of memory, or a crash in native code)"
    MEMORY = "ran out of memory {} times, at last while no other client trained"
    GPU_MEMORY = "ran out of GPU memory {} times, within the share of engine.gpus_per_client"
    HANG = "had its actor hang {} times, beyond engine.deadline"
    GPU = "broke the GPU context of its actor {} times"


@dataclass(frozen=True)
class Death:
    """The death of an actor. `why`: the cause in words. `alone`: no other actor was working."""

    cause: Cause
    why: str
    alone: bool = False


class Doomed(Exception):
    """A job's error after which its actor must end, since later jobs on it would fail too."""

    def __init__(self, death: Death) -> None:
        super().__init__(death)
        self.death = death

    def __str__(self) -> str:
        return self.death.why


def doom(error: BaseException) -> Doomed | None:
    """The `Doomed` error for an error that an actor cannot survive; None: the actor can continue."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Doomed):
            return cause
        said = f"{type(cause).__name__}: {cause}"[:300]
        match exhausted(cause):
            case "memory":
                return Doomed(Death(Cause.MEMORY, f"it ran out of memory ({said}): lower engine.actors to use less"))
            case "gpu memory":
                why = (
                    f"its share of the GPU's memory was full ({said}): raise engine.gpus_per_client, or lower "
                    "engine.vectorise or the batch"
                )
                return Doomed(Death(Cause.GPU_MEMORY, why))
            case "gpu":
                return Doomed(Death(Cause.GPU, f"its GPU context is broken ({said})"))
        cause = cause.__cause__
    return None
