"""How much runs have spent, and the score that a report compares."""

from __future__ import annotations

import json
from pathlib import Path

from fedray import report
from fedray.report.effort import spent
from fedray.runs.folder import RunFolder
from tests.report.folders import config, write


def test_steps_are_those_of_all_clients_that_answered_and_of_the_server(tmp_path: Path) -> None:
    folder = RunFolder(write(tmp_path / "run"))
    folder.rewrite(
        "metrics.jsonl", [row | {"train/steps": 10.0, "server/steps": 3} for row in folder.rows("metrics.jsonl")]
    )
    (run,) = report.read(tmp_path / "run").runs
    assert {axis: spent(run, axis).tolist() for axis in ("steps", "visits", "bytes")} == {
        "steps": [23, 46, 69],
        "visits": [2, 4, 6],
        "bytes": [1, 2, 3],
    }


def test_the_metric_is_one_that_most_runs_have(tmp_path: Path) -> None:
    for number in range(3):
        folder = write(tmp_path / f"run-{number}", config(name=f"run-{number}"))
        if number == 0:
            results = json.loads((folder / "results.json").read_text())
            results["best"]["personal/test/wer"] = 20.0
            (folder / "results.json").write_text(json.dumps(results))
    assert report.read(tmp_path).metric == "test/wer"
