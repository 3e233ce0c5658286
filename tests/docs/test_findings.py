"""The page of findings agrees with itself: its overview counts the verdicts, and each detail belongs to a row."""

import re
from collections import Counter
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
VERDICTS = re.findall(r"^- \*\*([a-z ]+)\*\*: ", PAGE, re.M)
PAPERS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("paper", PAPERS)
def test_overview_counts_the_verdicts_and_details_name_rows_of_the_table(paper: str) -> None:
    rows = [cells(row) for row in re.findall(r"^\| \d+ \|.*", PAPERS[paper], re.M)]
    assert [row[0] for row in rows] == [str(number + 1) for number in range(len(rows))]
    counts = Counter(row[-1] for row in rows)
    assert set(counts) <= set(VERDICTS) and all(len(row) == 5 for row in rows)
    (overview,) = re.findall(rf"^\| \[{re.escape(paper)}\].*", PAGE, re.M)
    assert cells(overview)[1:] == [str(counts[verdict]) for verdict in VERDICTS]
    details = [int(number) for number in re.findall(r"^- \*\*(\d+)\.\*\* ", PAPERS[paper], re.M)]
    assert details == sorted(set(details)) and set(details) <= set(range(1, len(rows) + 1))
