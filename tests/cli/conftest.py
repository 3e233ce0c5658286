"""A small run that waits in its second round, and a terminal to start it in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import ROUNDS, Terminal
from tests.small_corpus import patient_run


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run whose second round waits for the file `gate`."""
    return patient_run(tmp_path_factory.mktemp("noise")) | {"rounds": ROUNDS}


@pytest.fixture
def terminal(tmp_path: Path, cache: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()
