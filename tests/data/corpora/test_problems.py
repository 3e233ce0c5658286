"""A reader tells all problems of a corpus in one error, those of each file and of all files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray.core.parallel import serial
from fedray.data.corpora.formats.tsv import Tsv
from fedray.data.corpora.problems import MOST, Problems, gathered, refuse


def test_all_problems_of_all_files_are_told(tmp_path: Path) -> None:
    head = "path\tspeaker\ttext\tseconds\n"
    rows = "x.wav\tann\t\t0\ny.wav\tann\tone\tlong\n"
    (tmp_path / "a.tsv").write_text(head + rows)
    (tmp_path / "b.tsv").write_text(head.replace("seconds", "length") + "x.wav\tann\tone\t1\n")
    reader = Tsv(train=["a.tsv"], test=["b.tsv"], text_column="text")
    with pytest.raises(ValueError, match="^4 problems:") as told:
        reader.read(tmp_path, 0, tmp_path, serial)
    _, *lines = str(told.value).split("\n  ")
    assert [line.replace(f"{tmp_path}/", "")[:60] for line in lines[:3]] == [
        "a.tsv:2: the text is empty: complete the row or drop it",
        "a.tsv:2: x.wav: missing. Restore the file, drop the row, or ",
        "a.tsv:2: seconds must be a number above 0, not '0': correct ",
    ]
    assert lines[1].endswith("(1 more: 3)") and lines[2].endswith("(1 more: 3)")
    assert "b.tsv has no column 'seconds'" in lines[3]


def test_a_single_problem_stands_alone_and_many_are_cut_short() -> None:
    found: list[str] = []
    refuse(found)
    with gathered(found):
        raise ValueError("one")
    with pytest.raises(ValueError, match="^one$"):
        refuse(found)
    with gathered(found):
        raise Problems([f"problem {number}" for number in range(MOST)])
    with pytest.raises(Problems, match="^21 problems:\n  one\n  problem 0\n(.*\n)+  and 1 more$"):
        refuse(found)
