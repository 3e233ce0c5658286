"""A process with its own Ray under the shim, started once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.power.play import Player, player
from tests.power.shim import Shim


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    return Shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def play(shim: Shim) -> Iterator[Player]:
    with player(shim) as process:
        yield process
