"""What a round leaves behind: the clients' records, the totals, and the versions of client states that it replaces.

Also what a run leaves behind: its totals in results.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedray.core.algorithm import Algorithm
from fedray.core.types import Evaluation, ServerState
from fedray.engine.lane.lane import Failure, LaneResult
from fedray.engine.round.outcome import Outcome
from fedray.runs.folder import ClientRecord, Progress


def record(progress: Progress, outcome: Outcome, state: ServerState) -> tuple[Progress, list[tuple[str, int]]]:
    """The progress after the round, and the versions of client states (client, version) that it supersedes.

    `progress.clients` is changed in place: a copy would take longer, the more clients have taken part.
    """
    done, clients, superseded = progress.round + 1, progress.clients, []
    for lane in outcome.lanes:
        for client, report in lane.reports.items():
            before = clients.get(client, ClientRecord())
            now = replace(before, rounds=before.rounds + 1, last_round=done, report=report)
            if (written := lane.written.get(client)) is not None:
                now = replace(now, state=written)
                if before.state is not None:
                    superseded.append((client, before.state.version))
            clients[client] = now
        for failure in lane.failures:
            before = clients.get(failure.client, ClientRecord())
            clients[failure.client] = replace(before, failures=before.failures + 1, last_round=done)
    totals = dict(progress.totals)
    totals["up_bytes"] += sum(lane.up_bytes for lane in outcome.lanes)
    totals["down_bytes"] += outcome.down_bytes
    totals["failed"] += len(outcome.failures)
    kept = outcome.aggregate.kept or progress.kept
    after = Progress(state, done, clients, totals | outcome.totals, progress.best, kept=kept, **outcome.progress)
    return after, superseded


def store_prepared(progress: Progress, lanes: Sequence[LaneResult], down_bytes: int) -> None:
    """Put the clients that have prepared before the first round into its progress, and the bytes sent to them."""
    progress.clients = {client: ClientRecord(written) for lane in lanes for client, written in lane.written.items()}
    progress.totals["down_bytes"] += down_bytes


def row_of(
    algorithm: Algorithm, before: Progress, after: Progress, outcome: Outcome, scored: Evaluation | None
) -> dict[str, Any]:
    """The round's row of metrics.jsonl, without its times. `scored`: its model's scores (None: they are not due)."""
    totals, trained = after.totals, outcome.partial.metrics
    row: dict[str, Any] = {"round": after.round}
    row |= dict(trained.prefixed("train")) | {f"train/{name}": trained.get(name) for name in algorithm.logged}
    if outcome.server is not None:
        row |= dict(outcome.server.metrics.prefixed("server"))
    row |= dict(scored.metrics) if scored is not None else {}
    row |= dict(outcome.partial.personal.prefixed("personal"))
    row |= {f"strategy/{name}": value for name, value in after.kept.items()}
    row |= {
        "clients/cohort": outcome.cohort,
        "clients/ok": outcome.succeeded,
        "clients/failed": len(outcome.failures),
        "clients/dropped": outcome.dropped,
        "clients/prepared": sum(len(lane.prepared) for lane in outcome.lanes),
        "clients/effective": outcome.aggregate.effective,
        "clients/left_out": len(outcome.aggregate.left_out),
        "traffic/up_bytes": totals["up_bytes"] - before.totals["up_bytes"],
        "traffic/down_bytes": totals["down_bytes"] - before.totals["down_bytes"],
        "traffic/total_bytes": totals["up_bytes"] + totals["down_bytes"],
        "engine/driver_bytes": outcome.aggregate.bytes,
    }
    return row | formula(algorithm, after) | dict(outcome.settings) | outcome.row


def formula(algorithm: Algorithm, progress: Progress) -> dict[str, float]:
    """The bytes by the paper's formula, to compare with the bytes counted; {} if it has none."""
    if not algorithm.overrides("formula_bytes"):
        return {}
    updates = [client.rounds for client in progress.clients.values() if client.rounds]
    formula = algorithm.formula_bytes(len(updates), sum(updates))
    return {} if formula is None else {"traffic/formula_bytes": formula}


def reports(outcome: Outcome, round: int) -> list[dict[str, Any]]:
    """The rows of reports.jsonl of a round: what each client that trained reports to the strategy."""
    return [
        {"round": round, "client": client} | {f"report/{name}": value for name, value in report.items()}
        for lane in outcome.lanes
        for client, report in lane.reports.items()
    ]


def summary(progress: Progress) -> dict[str, Any]:
    """The totals of a run, for results.json."""
    totals = progress.totals
    return {
        "clients/failed": totals["failed"],
        "engine/killed": totals["killed"],
        "traffic/up_bytes": totals["up_bytes"],
        "traffic/down_bytes": totals["down_bytes"],
        "traffic/total_bytes": totals["up_bytes"] + totals["down_bytes"],
    }


def failure_rows(failures: Sequence[Failure], round: int) -> list[dict[str, Any]]:
    """Rows of failures.jsonl."""
    return [{"round": round, "client": f.client, "reason": f.reason, "traceback": f.traceback} for f in failures]
