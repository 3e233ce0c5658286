"""The table of scores by group of speakers, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedray import report
from fedray.report import by_group
from tests.report import folders

GROUPS = {"ann": "x", "bob": "x", "cid": "y"}


def rows(wrong: dict[str, int], groups: dict[str, str] = GROUPS) -> list[dict[str, Any]]:
    """Two utterances of five words for each speaker, the first with so many errors, the second with none."""
    return [
        {
            **{"utterance": f"{speaker}-{number}", "speaker": speaker, "label": "seen", "reference": "a b c d e"},
            **{"words": 5, "hypothesis": "a b c d e", "errors": wrong[speaker] * (1 - number), "group": group},
        }
        for speaker, group in groups.items()
        for number in range(2)
    ]


def test_each_group_the_worst_mean_and_spread(tmp_path: Path) -> None:
    """WER of x: (1 + 0) / 20 = 5 % and (3 + 2) / 20 = 25 %, of y 4 / 10 = 40 % and 0: means 15 and 20."""
    for seed, wrong in enumerate(({"ann": 1, "bob": 0, "cid": 4}, {"ann": 3, "bob": 2, "cid": 0})):
        settings = folders.config(seed=seed)
        folders.write(tmp_path / "runs" / str(seed), settings, rows({"ann": 5, "bob": 5, "cid": 5}), rows(wrong))
    found = report.read(tmp_path / "runs")
    (row,) = by_group.rows(found.groups, "test/wer")
    assert {name: row[name] for name in ("x", "y", "mean of groups", "spread")} == {
        "x": "15.0", "y": "20.0", "mean of groups": "17.5", "spread": "2.5",
    }  # fmt: skip
    assert row["worst"] == "y: 20.0 [20.0, 20.0]"  # it has one speaker
    assert "By group of speakers" in found.html()


def test_rows_of_different_groups_have_the_same_columns(tmp_path: Path) -> None:
    """One corpus has the groups x and y, the other y and z."""
    for name, groups in {"one": GROUPS, "other": {"ann": "y", "bob": "z"}}.items():
        wrong = {"ann": 1, "bob": 2, "cid": 4}
        folders.write(tmp_path / "runs" / name, folders.config(name=name), rows(wrong, groups), rows(wrong, groups))
    found = report.read(tmp_path / "runs")
    one, other = by_group.rows(found.groups, "test/wer")
    assert list(one) == list(other) == ["", "x", "y", "z", "worst", "mean of groups", "spread"]
    assert (one["x"], one["y"], one["z"]) == ("15.0", "40.0", "") and (other["x"], other["y"]) == ("", "10.0")
    text = Path(found.save(tmp_path / "out")).with_suffix(".md").read_text()
    assert "|  | x | y | z | worst |" in text
    assert folders.printed(found) and [table.columns for table in found.further_tables()]


def test_many_groups_have_their_worst_mean_and_spread_only(tmp_path: Path) -> None:
    """Thirteen groups of one speaker each, with 0 to 12 of 10 words wrong."""
    groups = {f"s{number:02d}": f"g{number:02d}" for number in range(13)}
    wrong = {speaker: number for number, speaker in enumerate(groups)}
    folders.write(tmp_path / "run", None, rows(wrong, groups), rows(wrong, groups))
    (row,) = by_group.rows(report.read(tmp_path / "run").groups, "test/wer")
    assert list(row) == ["", "worst", "mean of groups", "spread"]
    assert row["worst"].startswith("g12: 120.0") and row["mean of groups"] == "60.0"


def test_runs_without_groups_have_no_row(tmp_path: Path) -> None:
    folders.write(tmp_path / "run")
    assert by_group.rows(report.read(tmp_path / "run").groups, "test/wer") == []
