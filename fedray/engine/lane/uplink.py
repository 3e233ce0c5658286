"""The upload of a lane's updates: they are encoded, counted in bytes, and decoded. Clients keep what was lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedray.core.compression.links import TOO_LARGE, Link
from fedray.core.seeds import numpy_generator
from fedray.core.types import Client, Received, State, Update, Vector
from fedray.core.vectors import finite
from fedray.engine.jobs.work import Program
from fedray.engine.lane.lane import Lane

LOST = "upload/lost"  # in a client's state: what the last update lost, by the name of the vector
Residuals = Mapping[str, Vector]


@dataclass(frozen=True)
class Before:
    """A client's state as the algorithm wrote it, and what the client's last update lost."""

    state: State | None = None
    lost: Residuals = field(default_factory=dict)

    @classmethod
    def of(cls, state: State | None) -> Before:
        """Split the state on disk, which may hold nothing but what was lost."""
        if state is None or LOST not in state:
            return cls(state)
        return cls({key: value for key, value in state.items() if key != LOST} or None, state[LOST])


@dataclass(frozen=True)
class Sent:
    """An update as the server receives it, and the bytes sent, without the report."""

    update: Update
    bytes: int
    before: Before
    lost: Residuals | None = None  # None: the client keeps nothing

    def state(self, own: State | None, counts: bool) -> State | None:
        """The client's next state; None: the old one stays.

        `own`: the algorithm's part of it (None: the old part stays). `counts`: whether the server uses the update; if
        not, the client keeps what its update before had lost.
        """
        if self.lost is None or (own is None and not counts):
            return own
        lost = self.lost if counts else self.before.lost
        kept = own if own is not None else self.before.state or {}
        return {**kept, LOST: dict(lost)} if lost else own


class Uplink:
    """Sends the updates of a lane's clients. Each client is admitted before its update is sent."""

    def __init__(self, program: Program, lane: Lane, received: Received) -> None:
        self._algorithm, self._upload, self._lane, self._received = program.algorithm, program.upload, lane, received
        self._link, self._seed = Link(program.upload.code, program.algorithm.tensors()), program.seed
        self._before: dict[str, Before] = {}  # of the clients in training

    def admit(self, client: Client) -> Client:
        """The client as the algorithm sees it: its state without what its last update lost."""
        before = self._before[client.id] = Before.of(client.state)
        return replace(client, state=before.state)

    def send(self, client: str, update: Update) -> Sent:
        """Send the update of a client. ValueError: it is not finite, or its state has the reserved key."""
        before = self._before.pop(client)
        if update.state is not None and LOST in update.state:
            raise ValueError(f"the client's new state has the key {LOST!r}, which fedray keeps for itself: rename it")
        parts = {"delta": update.delta} | {f"vectors/{name}": vector for name, vector in update.vectors.items()}
        if not all(map(finite, parts.values())):
            raise ValueError(
                "the update holds NaN or infinite values: lower the client's learning rate, or clip its gradients"
            )
        sent = sum(self._link.size(vector.size) for vector in parts.values())
        lost: Residuals | None = None
        if not self._upload.code.exact:
            parts, sent, lost = self._coded(client, parts, before.lost)
        delta = self._algorithm.server_receive(parts["delta"], self._received) if update.delta.size else update.delta
        vectors = {name: parts[f"vectors/{name}"] for name in update.vectors}
        return Sent(replace(update, delta=delta, vectors=vectors), sent, before, lost)

    def _coded(
        self, client: str, parts: Mapping[str, Vector], before: Residuals
    ) -> tuple[dict[str, Vector], int, Residuals | None]:
        """The vectors as they arrive, the bytes sent, and what was lost (None: without feedback)."""
        feedback, sent = self._upload.feedback, 0
        generator = None if feedback else numpy_generator(self._seed, "upload", self._lane.trains_from, client)
        arrived, lost = dict[str, Vector](), dict[str, Vector]()
        for name, vector in parts.items():
            wanted = vector + before[name] if feedback and name in before else vector
            data = self._link.encode(wanted, generator)
            sent += len(data)
            arrived[name] = self._link.decode(data, wanted.size)
            if not finite(arrived[name]):
                raise ValueError(f"the update has numbers {TOO_LARGE}: choose another upload.kind")
            if feedback and wanted.size:
                lost[name] = wanted - arrived[name]
        return arrived, sent, lost if feedback else None
