"""The end of an audited run: each candidate's score, and what an attacker learns from the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np

from fedray.core.privacy.audits import AUDITS, Audit, Directions, coins, direction, findings
from fedray.core.seeds import seed_all
from fedray.core.settings import kind_of
from fedray.core.types import AuditedData, Broadcast, RunError, ServerState
from fedray.engine.jobs.job import Job, Workplace
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

    def run(self, place: Workplace, broadcast: Broadcast) -> dict[str, float]:
        algorithm, received = place.program.algorithm, place.receive(broadcast, self.round)
        data = cast(AuditedData, place.program.data)
        found = {}
        for name in list(data.candidates)[self.shard :: self.shards]:
            seed_all(place.program.seed, "audit", name)
            found[name] = float(np.mean(algorithm.losses(data.judged(name), received)))
        return found


def audit(rounds: Rounds, initial: ServerState, progress: Progress, folder: RunFolder) -> dict[str, Any]:
    """The section `audit` of results.json ({} without an audit). Writes audit.tsv with a row for each candidate."""
    settings, private = rounds.plan.audit, rounds.private
    if not isinstance(settings, Audit):
        return {}
    rounds.note("phase", {"text": "audit"})
    if isinstance(settings, Directions):
        inside, scores = _moved(rounds, settings, initial, progress.state)
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
    rounds: Rounds, settings: Directions, initial: ServerState, last: ServerState
) -> tuple[dict[str, bool], dict[str, float]]:
    """Canary -> whether it was inside, and canary -> the dot product of its direction with the model's change."""
    assert rounds.private is not None, "directions have no length without a bound"
    seed, size = rounds.program.seed, rounds.private.size(rounds.put(initial, 0).broadcast)
    change = last.params[:size].astype(np.float64) - initial.params[:size]
    inside = coins(settings.names, seed)
    # The bits of a BLAS product depend on the number of threads.
    return inside, {name: float(np.sum(change * direction(name, size, seed))) for name in inside}


def _losses(rounds: Rounds, state: ServerState, round: int) -> dict[str, float]:
    shards = rounds.plan.evaluation.shards

    def work() -> dict[str, float]:
        reference = rounds.put(state, round).server
        jobs = {shard: Judge(shard, shards, round, inputs=(reference,)) for shard in range(shards)}
        return {name: loss for part in rounds.pool.run(jobs).values() for name, loss in part.items()}

    found = rounds.again(work)
    if not all(map(math.isfinite, found.values())):
        raise RunError("audit: the loss of a candidate is not finite: the model has diverged, lower learning rates")
    return found
