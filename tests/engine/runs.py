"""Comparisons of runs by rows and bits, runs that were killed, and a first round computed by hand."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

import fedray
from fedray.core.seeds import seed_all
from fedray.core.types import Received, Vector
from fedray.engine.driver.driver import Assignment
from fedray.engine.jobs.work import hydrate, prepare, server
from fedray.engine.round.cohort import cut, sample
from fedray.runs.folder import RunFolder


def rows(folder: Path | RunFolder) -> list[dict[str, Any]]:
    """The rows without the keys that depend on the clock: times, and the number of actors killed because they hung."""
    return [
        {k: v for k, v in row.items() if not k.startswith("time/") and k != "engine/killed"}
        for row in (folder if isinstance(folder, RunFolder) else RunFolder(folder)).rows("metrics.jsonl")
    ]


def bits(folder: Path, round: int) -> tuple[bytes, dict[str, bytes]]:
    """The parameters of a round, and all client states on disk."""
    states = {str(path.relative_to(folder)): path.read_bytes() for path in sorted((folder / "states").rglob("*.pt"))}
    return RunFolder(folder).load(round).state.params.tobytes(), states


def same(one: Path, other: Path, round: int = 4, but: str = "") -> None:
    """Check that two runs have the same rows, except for the column `but`, and the same bits."""
    found = [[{**row, but: None} for row in rows(folder)] for folder in (one, other)]
    assert found[0] == found[1]
    assert bits(one, round) == bits(other, round)


def cut_short(folder: Path, round: int) -> None:
    """Leave of a finished run's folder what a kill before the checkpoint of this round, the last one, leaves."""
    shutil.rmtree(folder / "checkpoints" / f"round_{round:06d}")
    (folder / "results.json").unlink()


def same_on_more_actors_and_resumed(given: Mapping[str, Any], straight: Path, out: Path, actors: int = 2) -> None:
    """Check that `given`, of which `straight` is a run on one actor, has the same bits on more, and after a resume.

    The run in `out` is resumed on one actor, from what a kill before its last checkpoint leaves.
    """
    rounds = given["rounds"]
    fedray.run({**given, "engine": {**given["engine"], "actors": actors}}, out=out)
    same(out, straight, rounds)
    cut_short(out, rounds)
    fedray.resume(out, ["engine.actors=1"])
    same(out, straight, rounds)


def an_actor_dies(folder: Path) -> list[int]:
    """Kill a client actor of this process once the run in the folder has a round. Its PID is in the list afterwards."""
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            if folder.exists() and RunFolder(folder).rows("metrics.jsonl"):
                for process in psutil.Process().children(recursive=True):
                    with contextlib.suppress(psutil.Error):  # the process may have ended meanwhile
                        if not killed and "ClientActor" in " ".join(process.cmdline()):
                            process.kill()
                            killed.append(process.pid)
            time.sleep(0.02)

    threading.Thread(target=kill, daemon=True).start()
    return killed


def first_round(assignment: Assignment) -> tuple[dict[str, Vector], Vector, Vector]:
    """Round 0 by hand: every client's update in lane order, what the server learnt, and theta_0."""
    program, algorithm, data = assignment.program, assignment.program.algorithm, assignment.program.data
    state = algorithm.init(None)  # type: ignore[arg-type]
    received = Received(state.params, algorithm.broadcast(state, 0).settings, 0, assignment.assets)
    cohort = sample(data.client_ids(), assignment.plan.cohort, data.cost, program.seed, 0)
    deltas = {}
    for name in (
        name for lane in cut(cohort, assignment.plan.engine.lane_count(len(cohort)), data.cost) for name in lane
    ):
        client = hydrate(program, name, None, 0)
        first, _ = prepare(program, client, received)
        seed_all(client.seed)
        deltas[name] = algorithm.client_update(type(client)(client.id, client.data, client.seed, first), received).delta
    learnt = algorithm.server_train(server(program, 0, "cpu", assignment.assets, lambda *_: None), received)
    assert learnt is not None
    return deltas, learnt.delta, state.params
