"""An audit of updates: at the end of the run, clients train once more for an attacker who sees what they send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from fedray.core.privacy.audits import Updates
from fedray.core.privacy.leaks import Row, Sums
from fedray.core.privacy.settings import Local, Skellam
from fedray.core.types import ObservedData, RunError
from fedray.engine.lane.observing import Infer, Observe, Released, observed
from fedray.engine.options.audits import TABLE
from fedray.engine.options.private import PrivateRounds
from fedray.engine.round import cohort as cohorts
from fedray.engine.round.downlink import Posted
from fedray.engine.round.option import Option
from fedray.engine.round.rounds import Rounds
from fedray.runs.client_states import Written
from fedray.runs.folder import Progress, RunFolder

Piece = tuple[tuple[tuple[str, Written | None], ...], float]  # clients with the names of their states, and their cost


class Observing(Option):
    """An audit of updates. `private`: the option that its rounds are private by; None: they are not."""

    def __init__(self, settings: Updates, rounds: Rounds, private: PrivateRounds | None) -> None:
        self.settings, self.rounds, self.private = settings, rounds, private
        self.candidates = dict(cast(ObservedData, rounds.program.data).candidates)

    def words(self) -> str:
        inside = sum(self.candidates.values())
        return (
            f"audit: {len(self.candidates) - inside:,} auxiliary clients take no part; after the last round they and "
            f"{inside:,} others train again"
        )

    def results(self, progress: Progress, folder: RunFolder) -> Mapping[str, Any]:
        """The section `audit`. Writes audit.tsv with a row for each sum, client and attribute."""
        rounds, settings = self.rounds, self.settings
        rounds.note("phase", {"text": "audit"})
        first, last = began(progress, folder), ended(progress)

        def work() -> dict[int, tuple[dict[str, Any], list[Row]]]:
            posted = [self._put(one) for one in (first, last)]
            parts = rounds.pool.run(self._jobs(progress, (first, last), posted))
            everybody, failures, layout = observed(parts)
            rounds.check(failures, len(self.candidates))
            if layout is None:
                raise RunError("audit: no client sent an update")
            there = [name for name in self.candidates if name in everybody]
            sides = [[everybody[name] for name in there if self.candidates[name] is side] for side in (False, True)]
            inputs = tuple(rounds.pool.put(value) for value in (*sides, layout))
            deviations = self._central(first, posted[0]), self._central(last, posted[1])
            seed, attributes = rounds.program.seed, tuple(settings.attributes)
            jobs = {count: Infer(Sums(count, deviations), seed, attributes, inputs=inputs) for count in settings.sums}
            return rounds.pool.run(jobs)

        found = rounds.again(work)
        folder.write_table(TABLE, [{"sum": count} | row for count in settings.sums for row in found[count][1]])
        clients = sum(self.candidates.values())
        sides = {"clients": clients, "auxiliary": len(self.candidates) - clients}
        sums = {str(count): found[count][0] for count in settings.sums}  # in this order, whichever job ended first
        return {"audit": {"kind": "updates", **sides, "sums": sums}}

    def _put(self, progress: Progress) -> Posted:
        return self.rounds.put(progress.state, progress.round)

    def _jobs(self, progress: Progress, models: tuple[Progress, Progress], posted: list[Posted]) -> dict[int, Observe]:
        first, last = (released(self.rounds, self.private, *pair) for pair in zip(models, posted, strict=True))
        inputs = (posted[0].clients, posted[1].clients, self.rounds.first)
        return {
            number: Observe(clients, (first, last), inputs=inputs, cost=work)
            for number, (clients, work) in enumerate(pieces(self.rounds, list(self.candidates), progress))
        }

    def _central(self, progress: Progress, posted: Posted) -> float:
        """Standard deviation of what is added to each number of a sum, once, by whoever releases it."""
        if self.private is None or isinstance(self.private.mechanism.settings, Local | Skellam):
            return 0.0
        return self.private.noise(progress, posted.broadcast)


def began(progress: Progress, folder: RunFolder) -> Progress:
    """The progress before the first round, when no client had a state."""
    return replace(progress, state=folder.load(0).state, round=0, private={}, clients={})


def ended(progress: Progress) -> Progress:
    """The progress with the last broadcast's settings: the learning rate of a round that never comes may be 0."""
    return replace(progress, round=max(progress.round - 1, 0))


def released(rounds: Rounds, private: PrivateRounds | None, progress: Progress, posted: Posted) -> Released:
    """A model from which clients train for an audit, as in a round."""
    if private is None:
        return Released(progress.round, None, 0.0)
    population = len(rounds.program.data.client_ids())
    guard = private.settings(progress, posted.broadcast, rounds.plan.cohort.count(population))
    local = isinstance(private.mechanism.settings, Local)
    return Released(progress.round, guard, private.noise(progress, posted.broadcast) if local else 0.0)


def pieces(rounds: Rounds, names: Sequence[str], progress: Progress) -> Iterator[Piece]:
    """Clients in as many pieces as a cohort of their number has, whatever the number of actors."""
    cost = rounds.program.data.cost
    for lane in cohorts.cut(names, rounds.plan.engine.lane_count(len(names)), cost):
        records = [(name, progress.clients.get(name)) for name in lane]
        clients = tuple((name, None if record is None else record.state) for name, record in records)
        yield clients, sum(map(cost, lane))
