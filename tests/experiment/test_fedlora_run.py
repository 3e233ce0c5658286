"""End-to-end runs of FedLoRA: the bytes that travel, and the same bits for any number of actors and after a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

import fedray
from fedray.runs.folder import RunFolder
from tests import speech
from tests.algorithms.test_fedlora import FEDLORA
from tests.engine.runs import same_on_more_actors_and_resumed

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.long]
ROUNDS = 3


def settings(corpus: Path) -> dict[str, Any]:
    return speech.settings(corpus, algorithm=FEDLORA, rounds=ROUNDS)


@pytest.fixture(scope="module")
def straight(corpus: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> fedray.Result:
    return fedray.run(settings(corpus), out=tmp_path_factory.mktemp("straight") / "run")


def test_the_bytes_are_those_of_the_adapters_and_once_of_the_model(straight: fedray.Result) -> None:
    played = RunFolder(straight.folder).rows("metrics.jsonl")
    weights = torch.load(straight.folder / "model" / "model.pt", weights_only=True)
    model = 4 * sum(
        tensor.numel() for name, tensor in weights.items() if not name.endswith(".pe")
    )  # a table that each client can compute
    adapters = RunFolder(straight.folder).load(ROUNDS).state.params.nbytes - model
    clients, scalars = 3, 8 * 2  # bytes of examples and loss
    assert [row["traffic/up_bytes"] for row in played] == [clients * (adapters + scalars)] * ROUNDS
    met = pq.read_table(straight.folder / "clients.parquet").num_rows  # a round has three of the clients
    assert straight.results["traffic/down_bytes"] == ROUNDS * clients * adapters + met * model
    assert adapters < 0.25 * model
    formula = met * model + 2 * ROUNDS * clients * adapters
    assert straight.results["traffic/formula_bytes"] == played[-1]["traffic/formula_bytes"] == formula
    assert straight.results["traffic/total_bytes"] == formula + ROUNDS * clients * scalars, (
        "the formula forgets the scalars"
    )


@pytest.mark.nightly
def test_any_number_of_actors_and_a_resume_give_the_same_bits(
    straight: fedray.Result, corpus: Path, tmp_path: Path
) -> None:
    """Resumed from the folder that a kill after round 2 leaves, the clients' optimisers continue from their states."""
    same_on_more_actors_and_resumed(settings(corpus), straight.folder, tmp_path / "two")
