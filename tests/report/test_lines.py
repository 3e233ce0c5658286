"""Lines of figures: where a mean over runs ends, and how many of them can be told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedray import report
from fedray.report import Curves, Trend
from fedray.report.drawing.results import trend
from fedray.report.drawing.rounds import curves, shortest
from fedray.runs.folder import RunFolder
from tests.report.folders import config, sentences, write


def test_a_mean_over_runs_ends_where_the_first_run_ends() -> None:
    nan = np.nan
    assert shortest(np.array([[1.0, nan, 2.0, nan, nan], [3.0, 4.0, 5.0, 6.0, 7.0]])) == 3
    assert shortest(np.array([[nan, nan], [1.0, 2.0]])) == 2 and shortest(np.full((1, 3), nan)) == 0


def test_twelve_lines_of_a_trend_look_different(tmp_path: Path) -> None:
    for number in range(12):
        for alpha in (0.1, 0.5):
            name = f"n{number}-{alpha}"
            changed = {"algorithm__alpha": alpha, "algorithm__client__lr": number + 1.0}
            write(tmp_path / name, config(name=name, rounds=1, **changed), sentences(0, each=1), sentences(1, each=1))
    drawn = trend(Trend("algorithm.alpha", by="algorithm.client.lr"), report.read(tmp_path))
    lines = [line for line in drawn.axes[0].lines if line.get_marker() in ("o", "s", "^", "D")]
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == len(lines) == 12


def test_seven_metrics_of_one_method_look_different(tmp_path: Path) -> None:
    folder = RunFolder(write(tmp_path / "run"))
    names = [f"privacy/clipped|layer{number}" for number in range(7)]
    folder.rewrite("metrics.jsonl", [row | dict.fromkeys(names, 0.5) for row in folder.rows("metrics.jsonl")])
    drawn = curves(Curves(tuple(names)), report.read(tmp_path / "run"))
    lines = [line for line in drawn.axes[0].lines if not line.get_label().startswith("_")]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines) == 7
