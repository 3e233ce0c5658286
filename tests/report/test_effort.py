"""How much runs have spent."""

from __future__ import annotations

from pathlib import Path

from fedray import report
from fedray.report.effort import spent
from fedray.runs.folder import RunFolder
from tests.report.folders import write


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
