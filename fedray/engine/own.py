"""The clients' own models (personal ones, or the global one after a client's training), scored on their own data or on what all share."""

from __future__ import annotations

import math
import statistics
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedray.core.metrics import Metrics
from fedray.core.seeds import derive, seed_all
from fedray.core.types import Client, Received, RunError, State
from fedray.engine.folder import Progress
from fedray.engine.pool import Job
from fedray.engine.work import Program, hydrate

if TYPE_CHECKING:
    from fedray.engine.rounds import Rounds

PIECE = 8  # clients a job; never from the hardware
Scores = Mapping[str, Metrics]  # by split


def part(program: Program, split: str, utterances: int | None) -> Any:
    """About so many utterances of a split, evenly spread over their lengths and always the same; None: all."""
    whole = program.data.evaluation(split)
    pieces = 1 if utterances is None else max(1, round(len(whole) / utterances))
    return whole if pieces == 1 else program.data.evaluation(split, 0, pieces)


def score(program: Program, client: Client, state: State | None, received: Received, data: Mapping[str, Any]) -> Scores:
    """The client's own model with this state of its own, on each of these data sets."""
    seed = derive(program.seed, "client_evaluate", received.round, client.id)
    seed_all(seed)
    return program.algorithm.client_evaluate(Client(client.id, client.data, seed, state), received, data)


def one_vote(scores: Metrics) -> Metrics:
    """The same with a count of 1: summed over clients, the plain mean of their scores."""
    return Metrics.of({name: (value, 1.0) for name, value in scores.items() if value == value})


def evaluate(
    program: Program, clients: Sequence[tuple[str, int | None]], received: Received, splits: Sequence[str], utterances: int | None
) -> list[tuple[str, Scores, tuple[str, str] | None]]:
    """On an actor: client, its scores, and, where it failed, why, with the traceback."""
    shared = {split: part(program, split, utterances) for split in splits}
    found: list[tuple[str, Scores, tuple[str, str] | None]] = []
    for name, version in clients:
        try:
            client = hydrate(program, name, version, received.round)
            parts = {split: program.data.own(name, split) for split in splits}
            data = {split: shared[split] if own is None else own for split, own in parts.items()}
            found.append((name, score(program, client, client.state, received, data), None))
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is: recorded with its traceback, counted and judged by the driver
            found.append((name, {}, (f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))))
    return found


def at_the_end(
    rounds: Rounds, progress: Progress, splits: Sequence[str], report: Callable[[int, int], None]
) -> tuple[dict[str, Any], list[dict[str, Any]], list[Any]]:
    """Everybody who ever took part: what results.json holds, the rows of own.tsv, and (client, reason, traceback) of who failed.

    With the broadcast of the last round: a client's own training is that of a round, not of one that a schedule has brought to nothing.
    `report(done, of)` hears how many clients are scored, about a hundred times.
    """
    clients = [(client, progress.clients[client].version) for client in sorted(progress.clients) if progress.clients[client].rounds]
    _, reference = rounds.put(progress.state, progress.round - 1)
    jobs: dict[Hashable, Job] = {
        first: Job(
            "evaluate_own",
            (clients[first : first + PIECE], progress.round - 1, reference, splits, rounds.plan.evaluation.own_final_utterances),
        )
        for first in range(0, len(clients), PIECE)
    }

    def on_result(done: int) -> None:
        if done == len(jobs) or done % -(-len(jobs) // 100) == 0:
            report(min(done * PIECE, len(clients)), len(clients))

    found = [scored for piece in rounds.pool.run(jobs, on_result=on_result).values() for scored in piece]
    rows = [
        {"client": client, "split": split, **metrics}
        for client, scores, fault in found
        if fault is None
        for split, metrics in scores.items()
    ]
    results: dict[str, Any] = {"round": progress.round, "clients": sum(fault is None for _, _, fault in found)}
    for split in splits:
        mine = [row for row in rows if row["split"] == split]
        for name in dict.fromkeys(key for row in mine for key in row if key not in ("client", "split")):
            values = [value for row in mine if math.isfinite(value := row.get(name, math.nan))]
            if not values:  # nobody has a part of this split
                continue
            results[f"{split}/{name}"] = statistics.fmean(values)
            results[f"{split}/{name}_sd"] = statistics.pstdev(values)
    return results, rows, [(client, *fault) for client, _, fault in found if fault is not None]
