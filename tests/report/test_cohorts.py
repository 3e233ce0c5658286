"""Metrics that rounds measure: personal scores of their cohorts, and means over the rounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedray import report
from tests.report.folders import config, write

pytestmark = pytest.mark.usefixtures("unrendered")


def of_cohorts(folder: Path, scores: list[float | None], best: str | None = None, played: int = 3) -> Path:
    """Write a run whose rounds have personal scores; `best`: what chooses its best round, then the largest of them."""
    made = write(folder, config(name=folder.name, evaluation__best=best), played=played)
    rows = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    told = [row | {"personal/own_accuracy": score} for row, score in zip(rows, scores, strict=False)]
    (made / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in told))
    if best is not None and played == 3:
        results = json.loads((made / "results.json").read_text())
        results["best"]["round"] = 1 + max(range(3), key=lambda at: scores[at] or 0.0)
        (made / "results.json").write_text(json.dumps(results))
    return made


def test_a_personal_score_of_cohorts_is_that_of_the_best_or_the_last_scored_round(tmp_path: Path) -> None:
    metric = "personal/own_accuracy"
    of_cohorts(tmp_path / "rising", [10.0, 20.0, 90.0])
    of_cohorts(tmp_path / "level", [60.0, 60.0, 60.0])
    found = report.read(tmp_path, metric=metric)
    assert {group.label: group.score(metric) for group in found.groups} == {"level": 60.0, "rising": 90.0}
    assert [group.label for group in found.ranked()] == ["rising", "level"]
    assert "The personal own accuracy is of the cohort of the last scored round." in found.caption
    values = {}
    for name, best, played in (("done", metric, 3), ("begun", metric, 2), ("last", None, 3), ("so far", None, 2)):
        (run,) = report.read(of_cohorts(tmp_path / "of one" / name, [10.0, 80.0, 70.0], best, played)).runs
        values[name] = run.value(metric)
    assert values == {"done": 80.0, "begun": 80.0, "last": 70.0, "so far": 80.0}
    chosen = report.read(tmp_path / "of one" / "done", metric=metric)
    assert "is of the cohort of the best round." in chosen.caption
    (run,) = report.read(of_cohorts(tmp_path / "seldom", [10.0, 20.0, None])).runs
    assert run.value(metric) == 20.0


def test_the_caption_says_what_is_a_mean_over_the_rounds(tmp_path: Path) -> None:
    """The training losses are 3, 1.5 and 1."""
    found = report.read(write(tmp_path / "run"), metric="train/loss")
    assert found.runs[0].value("train/loss") == 5.5 / 3
    assert "The train loss is the mean over the rounds." in found.caption
    assert "mean over the rounds" not in report.read(tmp_path / "run").caption


def test_a_personal_score_of_cohorts_beside_those_of_all_clients(tmp_path: Path) -> None:
    """The figure of clients has no score of cohorts to draw."""
    folder = of_cohorts(tmp_path / "run", [10.0, 20.0, 90.0])
    (folder / "personal.tsv").write_text("client\tsplit\taccuracy\nann\town\t70.0\n")
    page = Path(report.read(folder, metric="personal/own_accuracy").save())
    assert "90.0" in page.with_suffix(".md").read_text()


def test_personal_models_improve_by_the_scores_of_their_cohorts(tmp_path: Path) -> None:
    """The shared model is best in the last of three rounds; personal models, by their cohorts, in the first."""
    folder = write(tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    scored = [row | {"personal/accuracy": 90.0 - at, "personal/own_accuracy": 50.0 + at} for at, row in enumerate(rows)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in scored))
    (run,) = report.read(folder).runs
    assert run.still_improving("test/wer") and run.still_improving("personal/own/accuracy")
    assert not run.still_improving("personal/test/accuracy") and not run.still_improving("personal/accuracy")
