"""What a round leaves behind: the clients' records, the totals, and the versions of client states that it replaces.

Also what a run leaves behind: its totals in results.json.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedray.core.types import ServerState
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
            after = replace(before, rounds=before.rounds + 1, last_round=done, report=report)
            if (written := lane.written.get(client)) is not None:
                after = replace(after, version=written.version, bytes=written.bytes, hash=written.hash)
                if before.version is not None:
                    superseded.append((client, before.version))
            clients[client] = after
        for failure in lane.failures:
            before = clients.get(failure.client, ClientRecord())
            clients[failure.client] = replace(before, failures=before.failures + 1, last_round=done)
    totals = dict(progress.totals)
    totals["up_bytes"] += sum(lane.up_bytes for lane in outcome.lanes)
    totals["down_bytes"] += outcome.down_bytes
    totals["failed"] += len(outcome.failures)
    return Progress(state, done, clients, totals | outcome.totals, progress.best, **outcome.progress), superseded


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
