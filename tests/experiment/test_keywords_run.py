"""End-to-end runs of a classification."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

import fedray
from fedray.runs.folder import RunFolder
from tests import keywords
from tests.engine.runs import bits, rows

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture(scope="module")
def straight(clips: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> fedray.Result:
    return fedray.run(keywords.settings(clips), out=tmp_path_factory.mktemp("straight") / "run")


def answers(run: fedray.Result) -> list[dict[str, str]]:
    """The best model's predictions for the test clips."""
    with (run.folder / "predictions.tsv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if (row["model"], row["split"]) == ("best", "test")]


def test_scores_and_predictions(straight: fedray.Result) -> None:
    table = RunFolder(straight.folder).rows("metrics.jsonl")
    assert len(table) == 3 and {"train/loss", "dev/accuracy", "dev/loss", "clients/ok"} <= set(table[0])
    best = straight.results["best"]
    assert best["dev/accuracy"] == max(row["dev/accuracy"] for row in table)
    predictions = answers(straight)
    wrong = sum(row["reference"] != row["hypothesis"] for row in predictions)
    assert len(predictions) == 8 and wrong == sum(int(row["errors"]) for row in predictions)
    assert best["test/accuracy"] == 100.0 * (8 - wrong) / 8


@pytest.mark.long
def test_any_number_of_actors_gives_the_same_bits(straight: fedray.Result, clips: Path, tmp_path: Path) -> None:
    again = fedray.run(
        keywords.settings(clips, engine={"lanes": 2, "actors": 2, "cpus_per_client": 0.5}), out=tmp_path / "run"
    )
    assert rows(again.folder) == rows(straight.folder)
    assert bits(again.folder, 3) == bits(straight.folder, 3)


def test_the_saved_model_says_the_same_without_fedray(straight: fedray.Result, clips: Path, tmp_path: Path) -> None:
    first, model = answers(straight)[0], straight.folder / "model"
    assert json.loads((model / "classes.json").read_text()) == list(keywords.WORDS)
    command = [sys.executable, "-W", "error", str(model / "example.py"), str(clips / first["utterance"])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == first["hypothesis"]
