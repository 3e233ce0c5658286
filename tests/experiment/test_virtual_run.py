"""End-to-end runs with devices: the same bits for any number of actors, and after five kill -9."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray.runs.folder import RunFolder
from tests import keywords, speech
from tests.algorithms.test_fedlora import FEDLORA
from tests.chaos.faults import kill_all
from tests.engine.runs import rows, same

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.long]
ROUNDS, KILLS = 6, 5
PHONE = {"seconds": 0.5, "down": 1e6, "up": 1e6, "watts": 2, "radio": 1, "lost": 0.2}
VIRTUAL = {
    "rounds": ROUNDS,
    "devices": {"kind": "classes", "classes": {"phone": PHONE}, "spread": 1.0},
    "clock": {"kind": "buffered", "concurrency": 3, "buffer": 2},
    "upload": {"kind": "topk", "share": 0.2, "values": "int8"},
    "evaluation": {"shards": 2, "every": 2},
}
FEDSTAR = {"kind": "fedstar", "client": {"optimizer": "adam", "lr": 0.01, "batch": 4}}
FEDMLAC = {"kind": "fedmlac", "sizes": ["tiny", "lite"], "client": {"lr": 0.1, "batch": 4}}


def fednst(folder: Path) -> dict[str, Any]:
    speech.write_corpus(folder, speakers=9)
    return speech.settings(folder)


def fedlora(folder: Path) -> dict[str, Any]:
    return {**fednst(folder), "algorithm": FEDLORA}


def fedstar(folder: Path) -> dict[str, Any]:
    keywords.write_corpus(folder)
    changed = keywords.settings(folder, algorithm=FEDSTAR, model={"kind": "audio_cnn"})
    changed["task"] = {"kind": "classification", "window": 0.2}
    changed["data"] |= {"labelled": {"share": 0.25, "at_least": 1}}
    return changed


def fedmlac(folder: Path) -> dict[str, Any]:
    keywords.write_corpus(folder)
    pruning = {"kind": "layerwise_pruning", "pruning": 0.3}
    return keywords.settings(folder, algorithm=FEDMLAC, strategy=pruning)


@pytest.fixture(
    scope="module",
    params=[fednst, *(pytest.param(one, marks=pytest.mark.nightly) for one in (fedlora, fedstar, fedmlac))],
)
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    make: Callable[[Path], dict[str, Any]] = request.param
    return {**make(tmp_path_factory.mktemp(make.__name__)), **VIRTUAL}


@pytest.fixture(scope="module")
def straight(given: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, in_process: None) -> Path:
    folder = fedray.run(given, out=tmp_path_factory.mktemp("straight") / "run").folder
    assert isinstance(folder, Path)
    return folder


def test_three_actors_give_the_same_bits(straight: Path, given: dict[str, Any], tmp_path: Path) -> None:
    engine = {"lanes": 2, "actors": 3, "cpus_per_client": 0.25}
    folder = fedray.run({**given, "engine": engine}, out=tmp_path / "run").folder
    same(folder, straight, ROUNDS)
    trips, table = RunFolder(folder).rows("trips.jsonl"), rows(folder)
    assert trips == RunFolder(straight).rows("trips.jsonl")
    assert {trip["fate"] for trip in trips} >= {"arrives", "lost"}
    assert max(row["virtual/staleness_most"] for row in table) > 0


@pytest.mark.nightly
def test_five_kills_change_no_bit(straight: Path, given: Mapping[str, Any], tmp_path: Path) -> None:
    """kill -9 ends the run with its driver, its actors and its Ray after each of the first five rounds."""
    folder, config = tmp_path / "run", tmp_path / "config.json"
    config.write_text(json.dumps(given), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    for kill in range(KILLS):
        begun = (folder / "config.yaml").exists()
        command = ["resume", str(folder)] if begun else ["run", str(config), "--out", str(folder)]
        with subprocess.Popen(
            [sys.executable, "-m", "fedray", *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            while len(RunFolder(folder).rows("metrics.jsonl")) <= kill:
                assert process.poll() is None, process.stderr and process.stderr.read().decode()
                time.sleep(0.02)
            kill_all(process)
    fedray.resume(folder)
    same(folder, straight, ROUNDS)
    assert RunFolder(folder).rows("trips.jsonl") == RunFolder(straight).rows("trips.jsonl")
