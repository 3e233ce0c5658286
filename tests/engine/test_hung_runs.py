"""Whole runs with clients that hang, run out of memory or break a GPU: the same bits, or a counted failure."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from fedray.core.types import Client, Received
from fedray.engine.driver import session
from fedray.engine.settings import DeadlineSettings
from fedray.runs.folder import RunFolder
from tests.engine import toys
from tests.engine.runs import same

HASTY = {"deadline": DeadlineSettings(factor=3.0, floor_s=4.0), "hang_warning_s": 1.0}


class Troubled(toys.Toy):
    """From the second round on, a troubled client hangs, has no memory or breaks a GPU, `once` a round or always."""

    def make_trouble(self, client: Client, received: Received) -> None:
        what, _, once = self.settings.trouble.partition(" ")
        seen = Path(self.settings.folder) / f"seen-{client.id}-{received.round}"
        if received.round == 0 or once and seen.exists():
            return
        with seen.open("a") as file:
            file.write("x")
        if what == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif what == "memory":
            raise MemoryError
        elif what == "torch":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")
        else:
            raise RuntimeError("CUDA error: device-side assert triggered")


@pytest.fixture(scope="module", autouse=True)
def shipped(cluster: None) -> None:
    session.ship(sys.modules[__name__])


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, shipped: None) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    toys.play(folder, rounds=3, cohort=12)
    return folder


def play(folder: Path, trouble: str, **options: Any) -> RunFolder:
    settings = toys.ToySettings(trouble=trouble, troubled=("client-05",), folder=str(folder))
    toys.run(folder / "run", algorithm=Troubled, settings=settings, rounds=3, cohort=12, **options)
    return RunFolder(folder / "run")


@pytest.mark.nightly
@pytest.mark.parametrize("trouble", ["stop once", "memory once", "torch once", "gpu once"])
def test_once_in_a_round_changes_no_bit(straight: Path, tmp_path: Path, trouble: str) -> None:
    folder = play(tmp_path, trouble, actors=2, **HASTY)
    same(tmp_path / "run", straight, 3)
    assert folder.rows("failures.jsonl") == []
    killed = [row["engine/killed"] for row in folder.rows("metrics.jsonl")]
    assert killed == ([0, 1, 1] if trouble == "stop once" else [0, 0, 0])


@pytest.mark.nightly
@pytest.mark.parametrize(("trouble", "attempts", "reason"), [
    ("stop", 2, "had its actor hang 2 times, beyond engine.deadline: left out of this round"),
    ("memory", 3, "ran out of memory 3 times, at last while no other client trained: left out of this round"),
    ("gpu", 2, "broke the GPU context of its actor 2 times: left out of this round"),
])  # fmt: skip
def test_always_is_a_counted_failure(straight: Path, tmp_path: Path, trouble: str, attempts: int, reason: str) -> None:
    folder = play(tmp_path, trouble, actors=2, failures_allowed=0.1, **HASTY)
    failures = folder.rows("failures.jsonl")
    assert [(row["round"], row["client"]) for row in failures] == [(2, "client-05"), (3, "client-05")]
    assert failures[0]["reason"] == reason
    assert (tmp_path / "seen-client-05-1").read_text() == "x" * attempts
    results = folder.read_text("results.json")
    assert f'"engine/killed": {4 * (trouble == "stop")}' in results
