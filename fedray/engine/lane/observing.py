"""The jobs of an audit of updates: clients train as in a round, their updates are sketched, and an attacker guesses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, final

import numpy as np

from fedray.core.privacy.leaks import Leaks, Observed, Row, Sums
from fedray.core.privacy.mechanism import rotation
from fedray.core.privacy.sketches import Layout, Sketch, sketcher
from fedray.core.seeds import numpy_generator
from fedray.core.types import Broadcast, ObservedData, RunError, Vector
from fedray.engine.actors.serial import StatesInMemory
from fedray.engine.jobs.job import Job, Workplace
from fedray.engine.jobs.work import Program
from fedray.engine.lane.guard import Guard
from fedray.engine.lane.lane import Failure, Lane, LaneResult
from fedray.engine.lane.training import TrainLane
from fedray.runs.client_states import Written

Found = tuple[list[Observed], list[Failure], Layout | None]  # of some clients; no layout: all of them failed


@dataclass(frozen=True)
class Released:
    """A model from which clients train for the audit. `noise`: standard deviation of what a client adds itself."""

    round: int  # whose settings and seeds the clients use
    guard: Guard | None
    noise: float


@dataclass(frozen=True)
class PartOf:
    """A part of a client's data, in place of its data: what a lane asks a federation for."""

    part: Any

    def load(self, client: str) -> Any:
        return self.part

    def cost(self, client: str) -> float:
        return float(len(self.part))


@final
@dataclass(frozen=True)
class Observe(Job[Found]):
    """Sketches of the updates that these clients send, from the first and the last model and from halves of their data.

    A client without a state begins as in its first round; what it writes then, it has in the last. No state reaches
    the disk.
    """

    clients: tuple[tuple[str, Written | None], ...]
    models: tuple[Released, Released]

    def run(self, workplace: Workplace, first: Broadcast, last: Broadcast, before: Broadcast | None) -> Found:
        """`before`: the broadcast of round 0, if clients prepare."""
        data = cast(ObservedData, workplace.program.data)
        found, failures, sketches = list[Observed](), list[Failure](), None
        for client, written in self.clients:
            program = apart(workplace.program)
            whole = replace(workplace, program=program)
            halves = [data.half(client, part) for part in (0, 1)]
            turns = [(whole, 0), (whole, 1)]
            if all(map(len, halves)):
                # What a client prepares is in the cache under its name, for all of its data.
                uncached = replace(program, prepare_cache=None)
                parts = (replace(uncached, data=cast(Any, PartOf(half))) for half in halves)
                turns += [(replace(whole, program=part), model) for model, part in enumerate(parts)]
            seen, last_state = list[Sketch](), written
            for turn, (place, model) in enumerate(turns):
                state, broadcast = (None, last_state)[model], (first, last)[model]
                sent, result = trained(place, (client, state), self.models[model], turn, broadcast, before)
                failures += result.failures
                if sent is None:
                    break
                assert result.packing is not None
                sketches = sketches or sketcher(result.packing.layers(workplace.layers), program.seed)
                seen.append(sketches.sketch(*sent))
                last_state = last_state or result.written.get(client)  # of the first update, from the first model
            else:
                pair = (seen[2], seen[3]) if len(seen) > 2 else None
                found.append(Observed(client, (seen[0], seen[1]), pair))
        return found, failures, None if sketches is None else sketches.layout


@final
@dataclass(frozen=True)
class Infer(Job[tuple[dict[str, Any], list[Row]]]):
    """What an attacker finds, and a row for each attacked client and attribute. RunError: it can learn nothing."""

    sums: Sums
    seed: int
    attributes: tuple[str, ...]

    def run(
        self, workplace: Workplace, known: Sequence[Observed], attacked: Sequence[Observed], layout: Layout
    ) -> tuple[dict[str, Any], list[Row]]:
        leaks, data = Leaks(known, attacked, layout, self.sums, self.seed), cast(ObservedData, workplace.program.data)
        attributes, rows = dict[str, Any](), list[Row]()
        for name in self.attributes:
            try:
                attributes[name], more = leaks.attribute(name, data.attributes[name])
            except ValueError as error:  # clients that failed may leave too few
                raise RunError(f"audit: {error}") from error
            rows += more
        same, more = leaks.same_client()
        return {"attributes": attributes, "same_client": same}, rows + more


def observed(parts: Mapping[Any, Found]) -> tuple[dict[str, Observed], list[Failure], Layout | None]:
    """The results of several jobs together."""
    everybody = {one.client: one for found, _, _ in parts.values() for one in found}
    failures = [failure for _, failed, _ in parts.values() for failure in failed]
    return everybody, failures, next((layout for _, _, layout in parts.values() if layout is not None), None)


def apart(program: Program) -> Program:
    """The program with new states in memory beside those on the disk, to which none is written."""
    states = StatesInMemory()
    states.restore({}, program.states)
    return replace(program, states=states)


def trained(
    workplace: Workplace,
    client: tuple[str, Written | None],
    model: Released,
    turn: int,
    broadcast: Broadcast,
    before: Broadcast | None,
) -> tuple[tuple[Vector, float] | None, LaneResult]:
    """What a client sends, with its log-weight (None: it failed), and the result of its lane.

    `turn` names the noise: no two updates of a client share it.
    """
    sent = list[tuple[Vector, float]]()
    lane = Lane(0, model.round, (client,), guard=model.guard)
    result = TrainLane(lane).run(
        workplace, broadcast, before, lambda _, update, log_weight: sent.append((update, log_weight))
    )
    if not sent:
        return None, result
    (update, log_weight), seed = sent[0], workplace.program.seed
    generator = numpy_generator(seed, "audit", "noise", turn, client[0])
    return (_noisy(update, model, generator), log_weight), result


def _noisy(update: Vector, model: Released, generator: np.random.Generator) -> Vector:
    """A flat update as it leaves a lane, with the noise that its client adds; whole numbers are decoded."""
    if model.guard is not None and (encoding := model.guard.encoding) is not None:
        total = update.astype(np.int64) + encoding.noise_of(1, generator)
        return encoding.decode(total, rotation(encoding, model.guard.seed, model.guard.round))
    if not model.noise:
        return update
    return update + np.float32(model.noise) * generator.standard_normal(len(update), np.float32)
