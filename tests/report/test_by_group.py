"""The table of scores by group of speakers, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedray import report
from fedray.report import by_group
from tests.report import folders

GROUPS = {"ann": "x", "bob": "x", "cid": "y"}


def rows(wrong: dict[str, int]) -> list[dict[str, Any]]:
    """Two utterances of five words for each speaker, the first with so many errors, the second with none."""
    return [
        {
            **{"utterance": f"{speaker}-{number}", "speaker": speaker, "label": "seen", "reference": "a b c d e"},
            **{"words": 5, "hypothesis": "a b c d e", "errors": wrong[speaker] * (1 - number), "group": group},
        }
        for speaker, group in GROUPS.items()
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


def test_runs_without_groups_have_no_row(tmp_path: Path) -> None:
    folders.write(tmp_path / "run")
    assert by_group.rows(report.read(tmp_path / "run").groups, "test/wer") == []
