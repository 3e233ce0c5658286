"""End-to-end runs of SCAFFOLD: control variates travel both ways; the bits do not depend on the number of actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray.runs.folder import RunFolder
from tests import keywords
from tests.engine.runs import same_on_more_actors_and_resumed

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.nightly]
ROUNDS = 3


def settings(clips: Path) -> dict[str, Any]:
    algorithm = {"kind": "scaffold", "client": {"lr": 0.1, "batch": 4}, "pretrain": {"steps": 0}}
    return keywords.settings(clips, algorithm=algorithm, strategy="uniform", rounds=ROUNDS)


@pytest.fixture(scope="module")
def straight(clips: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> fedray.Result:
    return fedray.run(settings(clips), out=tmp_path_factory.mktemp("straight") / "run")


def test_a_control_variate_as_large_as_the_model_travels_both_ways(straight: fedray.Result) -> None:
    state = RunFolder(straight.folder).load(ROUNDS).state
    assert state.extra["c"].shape == state.params.shape and state.extra["c"].any()
    rows = RunFolder(straight.folder).rows("metrics.jsonl")
    clients, scalars = 3, 8 * 2  # bytes of examples and loss
    assert [row["traffic/up_bytes"] for row in rows] == [clients * (2 * state.params.nbytes + scalars)] * ROUNDS
    assert [row["traffic/down_bytes"] for row in rows] == [clients * (2 * state.params.nbytes + 8)] * ROUNDS


def test_any_number_of_actors_and_a_resume_give_the_same_bits(
    straight: fedray.Result, clips: Path, tmp_path: Path
) -> None:
    same_on_more_actors_and_resumed(settings(clips), straight.folder, tmp_path / "two")
