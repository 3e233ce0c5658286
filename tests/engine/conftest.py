"""The run that most tests of the engine compare theirs with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine import toys


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Path:
    """Four rounds of the toy."""
    folder = tmp_path_factory.mktemp("straight")
    toys.play(folder)
    return folder
