"""An audited run: its canaries, and at the end each candidate's score and what an attacker learns from the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np

from fedray.core.privacy.audits import AUDITS, Audit, Directions, coins, direction, findings
from fedray.core.seeds import seed_all
from fedray.core.settings import kind_of
from fedray.core.types import AuditedData, Broadcast, RunError, ServerState
from fedray.engine.jobs.job import Job, Workplace
from fedray.engine.options.private import PrivateRounds
from fedray.engine.round.option import Option
from fedray.engine.round.outcome import Draw, Outcome
from fedray.engine.round.rounds import Rounds
from fedray.runs.folder import Progress, RunFolder

TABLE = "audit.tsv"


@final
@dataclass(frozen=True)
class Judge(Job[dict[str, float]]):
    """The mean loss of each candidate of a shard under a model."""

    shard: int
    shards: int
    round: int

    def run(self, workplace: Workplace, broadcast: Broadcast) -> dict[str, float]:
        algorithm, received = workplace.program.algorithm, workplace.receive(broadcast, self.round)
        data = cast(AuditedData, workplace.program.data)
        losses = {}
        for name in list(data.candidates)[self.shard :: self.shards]:
            seed_all(workplace.program.seed, "audit", name)
            losses[name] = float(np.mean(algorithm.losses(data.judged(name), received)))
        return losses


class Audited(Option):
    """An audit of the run. `private`: the option that its rounds are private by; None: they are not."""

    def __init__(self, settings: Audit, rounds: Rounds, private: PrivateRounds | None) -> None:
        self.settings, self.rounds, self.private = settings, rounds, private
        inside = settings.inside(rounds.program.seed) if isinstance(settings, Directions) else ()
        self.canaries = dict.fromkeys(inside)

    def draw(self, progress: Progress) -> Draw | None:
        """Canaries are drawn like other clients."""
        if not self.canaries:
            return None
        ids = [*self.rounds.program.data.client_ids(), *self.canaries]
        return self.rounds.sample(progress, ids, absent=self.canaries)

    def finish(self, progress: Progress, outcome: Outcome, broadcast: Broadcast) -> None:
        """Add what the round's canaries send to the sum. They count as clients that have what never changes."""
        drawn = sum(client in self.canaries for client in outcome.draw.chosen)
        outcome.down_bytes -= drawn * 4 * broadcast.constant
        answered = [client for client in outcome.draw.answering if client in self.canaries]
        if answered:
            assert self.private is not None, "directions have no length without a bound"
            self.private.insert(answered, progress, outcome, broadcast, self.rounds.aggregation.log_weight)

    def results(self, progress: Progress, folder: RunFolder) -> Mapping[str, Any]:
        """The section `audit`. Writes audit.tsv with a row for each candidate."""
        return audit(self.settings, self.rounds, self.private, progress, folder)


def audit(
    settings: Audit, rounds: Rounds, private: PrivateRounds | None, progress: Progress, folder: RunFolder
) -> dict[str, Any]:
    """The section `audit` of results.json. Writes audit.tsv with a row for each candidate."""
    initial = folder.load(0).state
    rounds.note("phase", {"text": "audit"})
    if isinstance(settings, Directions):
        assert private is not None, "directions have no length without a bound"
        size = private.size(rounds.put(initial, 0).broadcast)
        inside, scores = _moved(settings, rounds.program.seed, size, initial, progress.state)
    else:
        inside = dict(cast(AuditedData, rounds.program.data).candidates)
        before, after = _losses(rounds, initial, 0), _losses(rounds, progress.state, progress.round)
        scores = {name: before[name] - after[name] for name in inside}
    folder.write_table(TABLE, [{"client": name, "inside": int(inside[name]), "score": scores[name]} for name in inside])
    members, others = (np.array([scores[name] for name in inside if inside[name] is taken]) for taken in (True, False))
    delta = 0.0 if private is None else private.mechanism.settings.delta
    claimed = None if private is None else private.claimed(progress)
    try:
        found = findings(settings, members, others, delta, claimed)
    except ValueError as error:
        raise RunError(f"audit: {error}") from error
    return {"audit": {"kind": kind_of(settings, AUDITS), **found}}


def _moved(
    settings: Directions, seed: int, size: int, initial: ServerState, last: ServerState
) -> tuple[dict[str, bool], dict[str, float]]:
    """Canary -> whether it was inside, and canary -> the dot product of its direction with the model's change."""
    change = last.params[:size].astype(np.float64) - initial.params[:size]
    inside = coins(settings.names, seed)
    # The bits of a BLAS product depend on the number of threads.
    return inside, {name: float(np.sum(change * direction(name, size, seed))) for name in inside}


def _losses(rounds: Rounds, state: ServerState, round: int) -> dict[str, float]:
    shards = rounds.shards(cast(AuditedData, rounds.program.data).candidates)

    def work() -> dict[str, float]:
        reference = rounds.put(state, round).server
        jobs = {shard: Judge(shard, shards, round, inputs=(reference,)) for shard in range(shards)}
        return {name: loss for part in rounds.pool.run(jobs).values() for name, loss in part.items()}

    losses = rounds.again(work)
    if not all(map(math.isfinite, losses.values())):
        raise RunError("audit: the loss of a candidate is not finite: the model has diverged, lower learning rates")
    return losses
