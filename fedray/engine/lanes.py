"""Lanes: clients that one actor trains one after the other, and the result that goes to the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedray.core.packing import Packing
from fedray.core.sums import PartialSum
from fedray.engine.holding import local_disk
from fedray.runs.client_states import Written

PHASES = ("hydrate", "prepare", "train", "personal", "fold")
DEATHS_ALLOWED = 1  # a client that is at work when its actor dies a second time is left out


@dataclass(frozen=True)
class Lane:
    """Clients to train in this order, each with the name of its state (None: the client has no state yet).

    An actor writes the client at work to the file `marker` on its machine, which outlives an actor that dies.
    """

    number: int
    round: int
    clients: tuple[tuple[str, Written | None], ...]
    excluded: Mapping[str, str] = field(default_factory=dict)  # client -> why the lane skips the client
    attempt: int = 0
    personal: int = 0  # utterances of dev that personal models are scored on; 0: they are not scored
    marker: Path | None = None
    deaths: Mapping[str, int] = field(default_factory=dict)  # client -> actors that died while the client was at work

    @contextmanager
    def marking(self) -> Iterator[Callable[[str], None]]:
        """A function that writes the client at work to the marker."""
        if self.marker is None:
            yield lambda client: None
            return
        folder = self.marker.parent
        with local_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            file = self.marker.open("wb", buffering=0)
        with file:

            def mark(client: str) -> None:
                text = f"{self.round} {self.attempt} {client}".encode()
                with local_disk(folder):
                    os.pwrite(file.fileno(), text, 0)
                    os.ftruncate(file.fileno(), len(text))

            yield mark

    def client_at_work(self, node: str) -> str | None:
        """The client that the marker on a node names, if the marker is of this very attempt."""
        text = None if self.marker is None else _read_on(node, self.marker)
        before, found, client = (text or "").partition(f"{self.round} {self.attempt} ")
        return client if found and not before else None

    def after_death(self, node: str, warn: Callable[[str], None]) -> Lane:
        """The next attempt after the actor has died. A client that was at work at a second death is left out."""
        client = self.client_at_work(node)
        following = replace(self, attempt=self.attempt + 1)
        if client is None:
            return following
        warn(f"an actor died while client {client} was at work; lane {self.number} is trained again")
        deaths = self.deaths.get(client, 0) + 1
        excluded = dict(self.excluded)
        if deaths > DEATHS_ALLOWED:
            why = "out of memory, or a crash in native code"
            excluded[client] = f"killed its actor {deaths} times ({why}): left out of this round"
        return replace(following, deaths={**self.deaths, client: deaths}, excluded=excluded)


@dataclass(frozen=True)
class Failure:
    """A client that failed, and why."""

    client: str
    reason: str
    traceback: str


@dataclass
class LaneResult:
    """What an actor sends to the driver about a lane. Per client it holds one small record, and no update."""

    partial: PartialSum = field(default_factory=PartialSum)
    reports: dict[str, dict[str, float]] = field(default_factory=dict)  # of the clients that succeeded, in their order
    failures: list[Failure] = field(default_factory=list)
    written: dict[str, Written] = field(default_factory=dict)  # client -> its new state, which survives a power loss
    prepared: list[str] = field(default_factory=list)  # clients whose first state was made or found
    found: int = 0  # of these, states that were in the cache
    packing: Packing | None = None  # of each update; None: no client succeeded
    counted: int = 0  # clients whose updates have a weight
    up_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def extend(self, other: LaneResult) -> None:
        """Add the result of the next clients of the same lane."""
        self.partial.merge(other.partial)
        self.reports |= other.reports
        self.failures += other.failures
        self.written |= other.written
        self.prepared += other.prepared
        self.found += other.found
        self.packing = self.packing or other.packing
        self.counted += other.counted
        self.up_bytes += other.up_bytes
        self.seconds = {phase: self.seconds[phase] + other.seconds[phase] for phase in PHASES}


def _read_on(node: str, path: Path) -> str | None:
    """The text of a file on a node of the cluster; None when node or file is gone."""
    if node == ray.get_runtime_context().get_node_id():
        return _read(path) if path.is_file() else None
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    try:
        return str(
            ray.get(ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(_read).remote(path), timeout=30)
        )
    except (RayError, OSError):
        return None


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
