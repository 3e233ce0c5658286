"""Corpus trees that several test files read and none changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import trees


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trees.fsdd(tmp_path_factory.mktemp("fsdd"))
