"""Which runs a change is computed over, and what its sentence says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray import report
from fedray.report import tables
from fedray.runs.folder import RunFolder
from tests.report.folders import config, sentences, study, write


def test_a_change_needs_every_pair_of_runs_to_score_the_same_units(tmp_path: Path) -> None:
    """There is no change over the pairs that are left: it would be of other seeds than the scores next to it."""
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


def test_a_change_of_a_loss_is_relative_to_that_of_the_seed_model(tmp_path: Path) -> None:
    run = RunFolder(write(tmp_path / "run"))
    results = run.read_json("results.json")
    results["seed"]["test/loss"], results["best"]["test/loss"] = 4.0, 3.0
    run.write_json("results.json", results)
    (row,) = tables.rows(report.read(tmp_path / "run", metric="test/loss"))
    assert row["change"] == "\N{MINUS SIGN}25.0 %"


def test_a_sentence_says_the_direction_of_a_change(tmp_path: Path) -> None:
    write(tmp_path / "run", None, sentences(100, wrong=0.0), sentences(200, wrong=0.9))
    (sentence,) = tables.sentences(report.read(tmp_path))
    assert sentence.startswith("toy raises the test WER from 0.0 to ")


def test_a_run_folder_names_its_group_as_the_baseline(tmp_path: Path) -> None:
    root = study(tmp_path / "study")
    for name in (str(root / "alpha-0.5" / "1"), "alpha-0.5/1"):
        found = report.read(root, baseline=name)
        assert found.baseline is not None and found.baseline.label == "alpha=0.5"
    with pytest.raises(ValueError, match="'1' matches several groups"):  # each group has a folder of this name
        report.read(root, baseline="1")
    with pytest.raises(ValueError) as caught:
        report.read(root, baseline="beta")
    assert str(caught.value) == (
        "'beta' is not a group or a run; the groups are: alpha=0; alpha=0.5; "
        "the runs are: alpha-0.0/0, alpha-0.0/1, alpha-0.5/0, alpha-0.5/1"
    )


def test_folds_are_averaged_like_seeds(tmp_path: Path) -> None:
    for fold in (1, 2):
        for kind in ("fedavg", "fedmlac"):
            write(tmp_path / f"{kind}-{fold}", config(algorithm__kind=kind, data__options__fold=fold))
    assert [len(group.runs) for group in report.read(tmp_path).groups] == [2, 2]
    assert len(report.read(tmp_path, group_by=["data.options.fold"]).groups) == 2


def test_the_caption_says_what_chose_the_round(tmp_path: Path) -> None:
    write(tmp_path / "run", config(evaluation__best="own/macro_f1"))
    assert "best round (chosen by own macro-F1)" in report.read(tmp_path).caption
