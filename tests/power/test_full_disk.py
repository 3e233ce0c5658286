"""A few writes that fail; `python -m tests.full_disk` makes every write fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full_disk import DISKS, ENDS, KIND, Bench
from tests.power.play import Player
from tests.power.shim import Shim


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, shim: Shim, play: Player) -> Bench:
    straight = tmp_path_factory.mktemp("full") / "straight"
    assert play(straight, KIND) == {}
    return Bench(shim, play, straight)


@pytest.mark.nightly
@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize("share", [0.02, 0.2, 0.6, 0.97])
def test_a_disk_that_fails_ends_the_run_in_words(bench: Bench, tmp_path: Path, disk: str, share: float) -> None:
    calls = bench.calls(DISKS[disk], tmp_path / "whole")
    assert bench.fail(DISKS[disk], max(1, int(share * calls)), tmp_path / "run") == ENDS
