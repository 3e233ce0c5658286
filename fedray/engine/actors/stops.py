"""Why a pool stops before all jobs are done: the user wants it, or data are lost."""

from __future__ import annotations

from enum import Enum

from fedray.core.types import RunError


class Wish(Enum):
    """When the user wants the run to end."""

    NOT_YET = "not yet"
    AFTER_ROUND = "after the round"
    NOW = "now"


class Stopped(Exception):
    """The user wants the run to end at once."""


class Lost(RunError):
    """Data that a job needs were lost with an actor or a node: updates held there, or an input."""

    def __init__(self) -> None:
        super().__init__(
            "results that a job needs were lost with an actor or a node: `fedray resume` continues from the last "
            "checkpoint"
        )
