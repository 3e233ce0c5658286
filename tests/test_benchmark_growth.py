"""The growth benchmark, at sizes that take a minute: bytes, open files and memory of a run stay flat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import study
from benchmarks.engine import growth


@pytest.mark.nightly
def test_a_run_of_many_rounds_is_flat(cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "RESULTS", tmp_path)
    monkeypatch.setattr(growth, "POINTS", 6)
    growth.main(["--only", "disk", "seen", "--rounds", "300", "--seen", "100", "20000", "--seen-rounds", "12"])
    now = json.loads((tmp_path / "growth.json").read_text())["now"]
    disk, few, many = now["disk"], *now["seen"].values()
    assert disk["rounds"] == 300 and len(disk["at"]) == 5
    assert disk["bytes"][-1] < 1.6 * disk["bytes"][1], (
        "bytes a round: the first clients that take part again have states"
    )
    assert disk["files"][-1] <= disk["files"][0] + 2
    assert disk["memory"][-1] - disk["memory"][1] < 30e6
    assert many["bytes"] < 5 * few["bytes"], "200 times the clients, in a table of 0.5 MB"
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    assert "| now | 300 |" in (tmp_path / "growth.md").read_text()


def test_pieces_of_a_run() -> None:
    samples = [
        {"round": number, "seconds": 1.0, "bytes": 10 * number, "memory": 5, "files": 7} for number in range(1, 102)
    ]
    found = growth.summary(samples)
    assert found["at"][0] == 3 and found["at"][-1] == 101 and set(found["bytes"]) == {10.0}
