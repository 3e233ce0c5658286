"""End-to-end runs of FedMLAC: layer-wise pruning, and scores of personal models of two sizes, which do not travel."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray.runs.folder import RunFolder
from fedray.storage import serialize
from tests import keywords
from tests.engine.runs import bits, rows

pytestmark = pytest.mark.usefixtures("in_process")
ROUNDS = 3


def settings(clips: Path, **changes: Any) -> dict[str, Any]:
    algorithm = {"kind": "fedmlac", "sizes": ["tiny", "lite"], "client": {"lr": 0.1, "batch": 4}}
    evaluation = {"shards": 2, "personal_every": 1, "personal_utterances": 4, "personal_final": True}
    strategy = {"kind": "layerwise_pruning", "pruning": 0.3}
    base = {
        "rounds": ROUNDS,
        "algorithm": algorithm,
        "strategy": strategy,
        "evaluation": evaluation,
        "cohort": {"size": 4},
    }
    return keywords.settings(clips, **{**base, **changes})


@pytest.fixture(scope="module")
def straight(clips: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> fedray.Result:
    return fedray.run(settings(clips), out=tmp_path_factory.mktemp("straight") / "run")


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "personal.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_rows_and_own_models(straight: fedray.Result) -> None:
    """Personal models are scored on a part of dev each round, on dev and test at the end; each client counts once."""
    played, own = RunFolder(straight.folder).rows("metrics.jsonl"), straight.results["personal"]
    assert all(
        0 <= row["personal/accuracy"] <= 100 and row["personal/macro_f1"] >= 0 and row["train/personal_loss"] > 0
        for row in played
    )
    scores = table(straight.folder)
    assert own["clients"] == len(scores) / 2 == len({row["client"] for row in scores})
    tests = [float(row["accuracy"]) for row in scores if row["split"] == "test"]
    assert own["test/accuracy"] == pytest.approx(sum(tests) / len(tests))


def test_what_clients_hold_out_is_a_test_of_their_own(clips: Path, tmp_path: Path) -> None:
    """Personal models and the shared one are also scored on the clients' held-out data, each round and at the end."""
    given = settings(clips)
    given["data"]["own_share"] = 0.25
    given["algorithm"]["also_score"] = ["both"]
    result = fedray.run(given, out=tmp_path / "run")
    scores = [row for row in table(result.folder) if row["split"] == "own"]
    assert 0 < len(scores) == result.results["personal"]["clients"]
    mean = sum(float(row["accuracy"]) for row in scores) / len(scores)
    assert result.results["personal"]["own/accuracy"] == pytest.approx(mean)
    assert {"own/accuracy", "own/macro_f1", "test/accuracy"} <= result.results["best"].keys()
    assert "own/both_accuracy" in result.results["personal"]
    row = RunFolder(result.folder).rows("metrics.jsonl")[-1]
    assert 0 <= row["personal/own_accuracy"] <= 100 and row["personal/own_both_accuracy"] is not None


def test_the_plug_in_travels_and_the_personal_models_stay(straight: fedray.Result) -> None:
    folder = RunFolder(straight.folder)
    plugin = 4 * folder.load(ROUNDS).state.params.size
    for row in folder.rows("metrics.jsonl"):
        # sending a first state costs nothing
        assert (row["traffic/up_bytes"], row["traffic/down_bytes"]) == (4 * (plugin + 16), 4 * (plugin + 8))
    states = [serialize.load(path) for path in (straight.folder / "states").rglob("*.pt")]
    assert {state["size"] for state in states} == {"tiny", "lite"}
    assert {4 * state["params"].size == plugin for state in states} == {True, False}


@pytest.mark.long
def test_any_number_of_actors_and_a_resume_give_the_same_bits(
    straight: fedray.Result, clips: Path, tmp_path: Path
) -> None:
    engine = {"lanes": 2, "actors": 2, "cpus_per_client": 0.5}
    fedray.run(settings(clips, rounds=ROUNDS - 1, engine=engine), out=tmp_path / "run")
    fedray.resume(tmp_path / "run", [f"rounds={ROUNDS}", "engine.actors=1"])
    assert rows(tmp_path / "run") == rows(straight.folder)
    assert bits(tmp_path / "run", ROUNDS) == bits(straight.folder, ROUNDS)
    assert table(tmp_path / "run") == table(straight.folder)
