"""Each paper's page has the algorithm as in its source file, how to run it, and the results."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent.parent / "docs" / "papers"
ALGORITHMS = {
    "fednst": ["fednst"],
    "gao": ["gao"],
    "fedmlac": ["fedmlac"],
    "fedstar": ["fedstar"],
    "fedlora": ["fedlora", "fedmem"],
    "personalisation": ["fedper", "fedrep", "fedbabu", "fedbn", "moon", "feddyn", "fedntd"],
}


@pytest.mark.parametrize("page", ALGORITHMS)
def test_a_page_has_three_parts_and_the_algorithm_of_the_code(page: str) -> None:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    assert re.findall("^## (.*)$", text, re.MULTILINE)[:3] == ["The algorithm", "Run it", "Results"]
    shown = re.findall(r"```text\n(.*?)```", text.partition("## Run it")[0], re.DOTALL)
    assert len(shown) == len(ALGORITHMS[page])
    for block, name in zip(shown, ALGORITHMS[page], strict=True):
        source = importlib.import_module(f"fedray.algorithms.{name}").__doc__
        assert _words(block) in _words(source or "")


def _words(text: str) -> str:
    return " ".join(text.split())
