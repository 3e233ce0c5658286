"""The picture of docs/findings.md has the numbers of the page."""

from __future__ import annotations

import re

from benchmarks.claims import COLOURS, NUMBERS, PAGE, claims, in_words


def test_the_picture_has_the_numbers_of_the_page() -> None:
    listed = claims(PAGE.read_text(encoding="utf-8"), NUMBERS.read_text(encoding="utf-8"))
    for paper, rows in listed.items():
        for row in rows:
            told = set(re.findall(r"\d+(?:\.\d+)?", row.told))
            missing = {number.lstrip("−") for number in in_words(row.found)} - told
            assert not missing, f"{paper}, {row.title}: the page lacks {missing}"
            assert row.verdict in COLOURS
            assert row.found[1] <= row.found[0] <= row.found[2]
