"""A small run that waits in its second round, and a terminal to start it in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import small_corpus
from tests.cli.terminal import ROUNDS, Terminal


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run whose second round waits for the file `gate`."""
    folder = tmp_path_factory.mktemp("noise")
    splits = {"train": ("ann", "bob", "cid"), "dev": ("dee",), "test": ("eva",)}
    rows = {split: [(f"{name}-{i}", name, "ab") for name in names for i in range(2)] for split, names in splits.items()}
    small_corpus.write(folder, **rows)
    engine = {"lanes": 2, "actors": 1}
    values = small_corpus.config(folder, *splits, algorithm={"kind": "patient"}, cohort={"size": 2}, engine=engine)
    return values | {"imports": ["tests.patient"], "rounds": ROUNDS}


@pytest.fixture
def terminal(tmp_path: Path, cache: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()
