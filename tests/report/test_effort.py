"""What runs have spent."""

from __future__ import annotations

import json
from pathlib import Path

from fedray import report
from fedray.report.effort import spent
from tests.report.folders import write


def test_steps_are_those_of_all_clients_that_answered_and_of_the_server(tmp_path: Path) -> None:
    metrics = write(tmp_path / "run") / "metrics.jsonl"
    rows = [json.loads(line) | {"train/steps": 10.0, "server/steps": 3} for line in metrics.read_text().splitlines()]
    metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (run,) = report.read(tmp_path / "run").runs
    assert {axis: spent(run, axis).tolist() for axis in ("steps", "visits", "bytes")} == {
        "steps": [23, 46, 69],
        "visits": [2, 4, 6],
        "bytes": [1, 2, 3],
    }
