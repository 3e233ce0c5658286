"""Lanes: clients that one actor trains one after the other, and the result that goes to the driver."""

from __future__ import annotations

import os
import re
import site
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from fedray.core.attackers import Attackers
from fedray.core.packing import Packing
from fedray.core.sums import PartialSum
from fedray.engine.jobs.deaths import Cause, Death
from fedray.engine.jobs.holding import local_disk
from fedray.engine.lane.guard import Guard
from fedray.runs.client_states import Written

PHASES = ("hydrate", "prepare", "train", "personal", "fold")
END = "\0"  # ends the text of a marker; any bytes after it are left from a longer text
FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')  # of a traceback
LIBRARIES = (str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"), *site.getsitepackages())
DEATHS_ALLOWED = 1  # a client in training when its actor dies for the second time is left out


@dataclass(frozen=True)
class Lane:
    """Clients to train in this order, each with the name of its state (None: the client has no state yet).

    An actor writes the client in training to the file `marker` on its machine. The file outlives an actor that dies.
    """

    number: int
    round: int
    clients: tuple[tuple[str, Written | None], ...]
    excluded: Mapping[str, str] = field(default_factory=dict)  # client -> why the lane skips the client
    attempt: int = 0
    personal: int = 0  # utterances of dev that personal models are scored on; 0: they are not scored
    marker: Path | None = None
    deaths: Mapping[str, int] = field(default_factory=dict)  # client -> actors that died while training it
    alone: bool = False  # no other lane is trained at the same time
    together: int = 1  # clients that may be trained side by side
    guard: Guard | None = None  # of a private round
    attack: Attackers | None = None  # the attackers among these clients; all of them if they collude
    model: int | None = None  # the round whose broadcast the clients train from; None: this one
    factor: np.float32 = np.float32(1)  # multiplies each update; smaller for late ones
    work: Mapping[str, float] = field(default_factory=dict)  # client -> the share of its steps that it has time for

    @property
    def trains_from(self) -> int:
        """The round whose broadcast the clients train from."""
        return self.round if self.model is None else self.model

    @contextmanager
    def marking(self) -> Iterator[Callable[[str], None]]:
        """Yield a function that writes the client in training to the marker."""
        if self.marker is None:
            yield lambda client: None
            return
        folder = self.marker.parent
        with local_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self.marker, os.O_WRONLY | os.O_CREAT, 0o600)

        def write(text: str) -> None:
            with local_disk(folder):
                os.pwrite(file, f"{text}{END}".encode(), 0)  # truncating the file too takes ten times as long

        try:
            write("")
            yield lambda client: write(f"{self.round} {self.attempt} {client}")
        finally:
            os.close(file)

    def client_at_work(self, node: str) -> str | None:
        """The client that the marker on a node names, if the marker is from this attempt."""
        from fedray.engine.cluster.nodes import read_on  # here: only the driver asks, and a lane is trained without Ray

        text = None if self.marker is None else read_on(node, self.marker)
        text, prefix = (text or "").partition(END)[0], f"{self.round} {self.attempt} "
        return text.removeprefix(prefix) if text.startswith(prefix) else None

    def after_death(self, node: str, death: Death, warn: Callable[[str], None]) -> Lane:
        """The next attempt after the actor has died. A client that was in training at a second death is left out.

        If memory ran out, other lanes may be the cause: the lane runs alone before such a client is left out.
        """
        client = self.client_at_work(node)
        following = replace(self, attempt=self.attempt + 1, alone=False)
        if client is None:
            return following
        what = "hung" if death.cause is Cause.HANG else "died"
        warn(f"an actor {what} while it trained client {client}; lane {self.number} is trained again")
        deaths = self.deaths.get(client, 0) + 1
        following = replace(following, deaths={**self.deaths, client: deaths})
        if deaths <= DEATHS_ALLOWED:
            return following
        if self.together > 1:  # it may have been another client of its group
            return replace(following, together=1)
        if death.cause is Cause.MEMORY and not death.alone:
            return replace(following, alone=True)
        why = f"{death.cause.value.format(deaths)}: left out of this round"
        return replace(following, excluded={**self.excluded, client: why})


@dataclass(frozen=True)
class Failure:
    """A client that failed, and why."""

    client: str
    reason: str
    traceback: str

    @classmethod
    def of(cls, client: str, error: Exception) -> Self:
        """The failure of a client by this error, with its notes: they name the step and the utterances."""
        reason = "; ".join((f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())))
        return cls(client, reason, "".join(traceback.format_exception(error)))

    @property
    def where(self) -> str:
        """File, line and function of the innermost frame outside fedray and libraries; "": there is none."""
        frames = [frame for frame in FRAME.findall(self.traceback) if not frame[0].startswith(("<", *LIBRARIES))]
        return "{}:{}, in {}".format(Path(frames[-1][0]).name, *frames[-1][1:]) if frames else ""


class ClientFailed(Exception):
    """The traceback of a failed client, as the cause of the run's error."""


@dataclass
class LaneResult:
    """What an actor sends to the driver about a lane: one small record per client, and no update of a single client."""

    partial: PartialSum = field(default_factory=PartialSum)
    reports: dict[str, dict[str, float]] = field(default_factory=dict)  # of the clients that succeeded, in their order
    failures: list[Failure] = field(default_factory=list)
    written: dict[str, Written] = field(default_factory=dict)  # client -> its new state, which survives a power loss
    prepared: list[str] = field(default_factory=list)  # clients whose first state was made or found
    cached: int = 0  # of these, states that were in the cache
    packing: Packing | None = None  # of each update; None: no client succeeded
    counted: int = 0  # clients whose updates have a weight
    clipped: npt.NDArray[np.int64] | None = None  # private: for each group, clients whose updates were scaled down
    up_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def extend(self, other: LaneResult) -> None:
        """Add the result of the next clients of the same lane."""
        self.partial.merge(other.partial)
        self.reports |= other.reports
        self.failures += other.failures
        self.written |= other.written
        self.prepared += other.prepared
        self.cached += other.cached
        self.packing = self.packing or other.packing
        self.counted += other.counted
        if other.clipped is not None:
            self.clipped = other.clipped if self.clipped is None else self.clipped + other.clipped
        self.up_bytes += other.up_bytes
        self.seconds = {phase: self.seconds[phase] + other.seconds[phase] for phase in PHASES}
