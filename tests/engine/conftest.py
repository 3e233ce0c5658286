"""The run that most tests of the engine compare theirs with, played once for all processes of the test session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filelock import FileLock

from tests.engine import toys


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Path:
    """Four rounds of the toy on two actors."""
    root = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        root = root.parent  # pytest gives each of its processes a folder in it
    with FileLock(root / "straight.lock"):
        if not (root / "straight" / "results.json").exists():
            toys.run(root / "straight", actors=2)
    return root / "straight"
