"""A client's state that is lost or damaged ends the run with a message: it is no failure of the client."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedray.core.types import RunError
from fedray.runs.folder import RunFolder
from tests.engine import toys

pytestmark = pytest.mark.usefixtures("cluster")
ALL = {"cohort": 12}  # every client in every round


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Path:
    folder = tmp_path_factory.mktemp("half") / "run"
    toys.play(folder, rounds=1, **ALL)
    return folder


@pytest.fixture
def folder(half: Path, tmp_path: Path) -> Path:
    return shutil.copytree(half, tmp_path / "run")


def state(folder: Path) -> Path:
    return folder / "states" / "client-03" / "000001.pt"


def test_a_state_that_was_lost_between_two_runs(folder: Path) -> None:
    state(folder).unlink()
    with pytest.raises(RunError, match=rf"{state(folder)}: is missing\. It is the state of client client-03"):
        toys.play(folder, rounds=2, **ALL)


@pytest.mark.long
def test_a_state_that_is_damaged_is_found_when_it_is_loaded(folder: Path) -> None:
    data = bytearray(state(folder).read_bytes())
    data[len(data) // 2] ^= 1
    state(folder).write_bytes(data)
    with pytest.raises(RunError, match=rf"{state(folder)}: has changed since it was written \(its hash differs\)"):
        toys.play(folder, rounds=2, failures_allowed=1.0, **ALL)
    assert RunFolder(folder).rows("failures.jsonl") == []
