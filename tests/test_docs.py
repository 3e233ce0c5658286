"""The documentation's links lead somewhere, its walk-through shows the package's code, and the files it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "configs").glob("*.md"),
    *(ROOT / "benchmarks").rglob("*.md"),
]


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_files_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [
        link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith(("http", "#"))
    ]
    assert not [link for link in links if not (page.parent / link).exists()]
    if page.name != "CHANGELOG.md":  # it names files that have moved
        files = re.findall(r"\b(?:configs|sweeps|docs|benchmarks)/[\w/.-]+\.(?:yaml|py|md|png)\b", text)
        assert not [file for file in files if not (ROOT / file).exists()]


def test_every_page_of_docs_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert pages == {link for link in re.findall(r"\]\(([\w/.-]+\.md)\)", index) if not link.startswith("..")}


def test_the_code_of_the_walk_through_is_that_of_the_algorithm() -> None:
    page = (ROOT / "docs" / "write-an-algorithm.md").read_text(encoding="utf-8")
    code = (ROOT / "fedray" / "algorithms" / "scaffold.py").read_text(encoding="utf-8")
    blocks = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    plain = re.sub(r"\s+", " ", code)
    assert not [block for block in blocks if re.sub(r"\s+", " ", block).strip() not in plain]


@pytest.mark.parametrize("words", ["/".join(parts) for parts in (("..", "shared"), ("", "work", ""), ("", "tmp", ""))])
def test_nothing_names_a_folder_of_one_machine(words: str) -> None:
    folders = ["benchmarks", "configs", "docs", "sweeps"]
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".md", ".py", ".yaml", ".json")
    ]
    named = [str(path.relative_to(ROOT)) for path in [*files, *PAGES] if words in path.read_text(encoding="utf-8")]
    assert not named
