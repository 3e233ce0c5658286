"""Which runs a change is told over, and what its sentence says."""

from __future__ import annotations

from pathlib import Path

from fedray import report
from fedray.report import tables
from tests.report.folders import config, sentences, write


def test_a_change_needs_every_pair_of_runs_to_score_the_same_units(tmp_path: Path) -> None:
    """Over the pairs that are left it would be that of other seeds than the scores beside it."""
    for seed in (0, 1):
        write(tmp_path / "one" / f"{seed}", config(seed=seed))
        heard = sentences(200 + seed, *([("eve", "fay")] if seed else []))
        write(tmp_path / "other" / f"{seed}", config(seed=seed, algorithm__alpha=0.1), heard, heard)
    other, one = report.read(tmp_path).groups
    assert one.against(other, "test/wer") is None and one.change("test/wer") is not None


def test_a_run_under_way_does_not_count_beside_finished_ones(tmp_path: Path) -> None:
    write(tmp_path / "done", config(seed=0))
    write(tmp_path / "begun", config(seed=1), played=1)
    (group,) = report.read(tmp_path).groups
    assert group.score("traffic/total_bytes") == 3e9 and len(group.runs) == 2


def test_a_sentence_says_the_direction_of_a_change(tmp_path: Path) -> None:
    write(tmp_path / "run", None, sentences(100, wrong=0.0), sentences(200, wrong=0.9))
    (sentence,) = tables.sentences(report.read(tmp_path))
    assert sentence.startswith("toy raises the test WER from 0.0 to ")
