"""Scores of personal models: on the part of a split that belongs to the client, or on the whole split.

If an algorithm keeps no personal models, the global model after the client's training takes their place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, final

from fedray.core.metrics import Metrics
from fedray.core.seeds import derive, seed_all
from fedray.core.types import Broadcast, Client, Evaluation, Received, RunError
from fedray.engine.jobs.deaths import Death, doom
from fedray.engine.jobs.job import Job, Reference, Workers, Workplace
from fedray.engine.jobs.work import Program, hydrate
from fedray.engine.lane.lane import DEATHS_ALLOWED, Failure
from fedray.engine.lane.uplink import Before
from fedray.runs.client_states import Written

PIECE = 8  # clients per job, whatever the hardware
ClientsWithState = Sequence[tuple[str, Written | None]]  # clients with the names of their states
Scores = Mapping[str, Evaluation]  # by split


def part(program: Program, split: str, utterances: int | None) -> Any:
    """About so many utterances of a split, always the same and evenly spread over their lengths; None: all."""
    whole = program.data.evaluation(split)
    pieces = 1 if utterances is None else max(1, round(len(whole) / utterances))
    return whole if pieces == 1 else program.data.evaluation(split, 0, pieces)


def score(program: Program, client: Client, received: Received, data: Mapping[str, Any], final: bool = False) -> Scores:
    """Score the personal model of a client in this state on each of these data sets."""
    seed = derive(program.seed, "client_evaluate", received.round, client.id)
    seed_all(seed)
    # An algorithm that repeats the client's training repeats the share of it that the client had time for.
    received = replace(received, work=client.work)
    scores = program.algorithm.evaluate_personal(replace(client, seed=seed), received, data, final)
    return scores if final else {split: Evaluation(one.metrics) for split, one in scores.items()}


def one_vote(scores: Metrics) -> Metrics:
    """The same scores with a count of 1, so that adding them over clients gives the plain mean."""
    return Metrics.of({name: (value, 1.0) for name, value in scores.items() if value == value})


@dataclass(frozen=True)
class Scored:
    """A client with the scores of its personal model, or with the reason there are none."""

    client: str
    scores: Scores
    failure: Failure | None = None


@final
@dataclass(frozen=True)
class EvaluatePersonal(Job[list[Scored]]):
    """Score the personal models of some clients on these splits.

    `utterances`: about so many of each split, if clients have no part of it; None: all. `predictions`: whether to add a
    row for each utterance.
    """

    clients: ClientsWithState
    round: int
    splits: Sequence[str]
    utterances: int | None
    predictions: bool
    deaths: int = 0  # of actors that ran this job

    def after_death(self, node: str, death: Death, warn: Callable[[str], None]) -> Self:
        return replace(self, deaths=self.deaths + 1)

    def run(self, workplace: Workplace, broadcast: Broadcast) -> list[Scored]:
        program, received = workplace.program, workplace.receive(broadcast, self.round)
        shared = {split: part(program, split, self.utterances) for split in self.splits}
        return [self._score(program, name, written, received, shared) for name, written in self.clients]

    def _score(
        self, program: Program, name: str, written: Written | None, received: Received, shared: Mapping[str, Any]
    ) -> Scored:
        try:
            client = hydrate(program, name, written, self.round)
            client = replace(client, state=Before.of(client.state).state)
            parts = {split: program.data.client_part(name, split) for split in self.splits}
            data = {split: shared[split] if mine is None else mine for split, mine in parts.items()}
            return Scored(name, score(program, client, received, data, self.predictions))
        except RunError:
            raise
        except Exception as error:  # any error: recorded with its traceback; the driver counts and judges it
            if (doomed := doom(error)) is not None and self.deaths <= DEATHS_ALLOWED:
                raise doomed from error
            return Scored(name, {}, Failure.of(name, error))


def evaluate_all(
    pool: Workers,
    clients: ClientsWithState,
    round: int,
    broadcast: Reference,
    splits: Sequence[str],
    utterances: int | None,
    predictions: bool,
    progress: Callable[[int, int], None],
) -> list[Scored]:
    """The scores of all these clients, in their order. `progress(done, of)` is called about a hundred times."""
    jobs = {
        first: EvaluatePersonal(
            clients[first : first + PIECE], round, splits, utterances, predictions, inputs=(broadcast,)
        )
        for first in range(0, len(clients), PIECE)
    }

    def on_result(done: int) -> None:
        if done == len(jobs) or done % -(-len(jobs) // 100) == 0:
            progress(min(done * PIECE, len(clients)), len(clients))

    return [scored for piece in pool.run(jobs, on_result=on_result).values() for scored in piece]


def table(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """The rows of personal.tsv: one for each client and split."""
    return [
        {"client": one.client, "split": split, **evaluation.metrics}
        for one in scored
        if one.failure is None
        for split, evaluation in one.scores.items()
    ]


def predictions(scored: Sequence[Scored]) -> Iterator[dict[str, Any]]:
    """The rows of personal_predictions.tsv: one for each client, split and utterance."""
    for one in scored:
        for split, evaluation in one.scores.items():
            yield from ({"client": one.client, "split": split, **row} for row in evaluation.predictions)


def summary(rows: Sequence[Mapping[str, Any]], splits: Sequence[str]) -> dict[str, float]:
    """For each score of each split, the plain mean over the clients and the standard deviation (`_sd`)."""
    results: dict[str, float] = {}
    for split in splits:
        mine = [row for row in rows if row["split"] == split]
        for name in dict.fromkeys(key for row in mine for key in row if key not in ("client", "split")):
            values = [value for row in mine if math.isfinite(value := row.get(name, math.nan))]
            if values:  # else no client has a part of this split
                results[f"{split}/{name}"] = statistics.fmean(values)
                results[f"{split}/{name}_sd"] = statistics.pstdev(values)
    return results
