"""Jobs run one after another in this process, without actors: what the workbench steps through."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedray.core.pulse import heard_by
from fedray.core.types import Broadcast, State
from fedray.engine.jobs.holding import Holder
from fedray.engine.jobs.job import Job, Key, Result, Taker, Workers, Workplace
from fedray.engine.jobs.work import Program, StateStore
from fedray.engine.telemetry.signs import Signs
from fedray.runs.client_states import Written, hash_of
from fedray.storage import serialize


class SerialPool(Workers):
    """Stands in for a pool of one actor. A client's error is not recorded: it ends `run`, with a note of the client."""

    size, number, node = 1, 0, ""

    def __init__(
        self, program: Program, assets: Mapping[str, Any], device: str, progress: Callable[[int, int, str], None]
    ) -> None:
        holder, layers = Holder(Path(), math.inf), tuple(program.algorithm.layers())  # holds everything in memory
        self.workplace = Workplace(program, layers, assets, holder, progress, device, raises=True)

    def put(self, value: Any) -> Any:
        """A copy of the value. The parameters of a broadcast are read-only, as they are in the object store."""
        value = copy.deepcopy(value)
        if isinstance(value, Broadcast):
            value.params.flags.writeable = False
        return value

    def each(self, jobs: Mapping[Key, Job[Result]], take: Taker[Key, Result]) -> None:
        """Run all jobs in their order; those that follow from a result run next. Raises the first error."""
        waiting = [*jobs.items()]
        while waiting:
            key, job = waiting.pop(0)
            with heard_by(Signs(lambda: None, self.workplace.progress)):
                result = job.unmarked().run(self.workplace, *job.inputs)
            waiting[:0] = take(key, result, self).items()

    def fetch(self, reference: Any) -> Any:
        return reference

    def neighbours(self, jobs: int) -> list[str | None]:
        return [None] * jobs

    def nodes_alive(self) -> set[str]:
        return {self.node}

    def lives(self, number: int | None) -> bool:
        """True: this process does not outlive itself."""
        return True


class StatesInMemory:
    """Client states in memory, by their hash: states of one client in two futures of a run do not meet."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}
        self._before: StateStore | None = None

    def load(self, client: str, written: Written) -> State:
        if written.hash in self._data or self._before is None:
            return serialize.loads(self._data[written.hash], f"the state of {client}")
        return self._before.load(client, written)

    def save(self, client: str, version: int, state: State) -> Written:
        data = serialize.dumps(state)
        written = Written(version, len(data), hash_of(data))
        self._data[written.hash] = data
        return written

    def sync(self, written: Mapping[str, Written]) -> None:
        """Do nothing: no state here survives a power loss."""

    def taken(self, named: Iterable[tuple[str, Written]]) -> dict[str, bytes]:
        """The data of those of these states that are in memory, by hash."""
        return {written.hash: self._data[written.hash] for _, written in named if written.hash in self._data}

    def restore(self, taken: Mapping[str, bytes], before: StateStore | None) -> None:
        """Forget all states but these. `before`: has states that are not in memory."""
        self._data, self._before = dict(taken), before
