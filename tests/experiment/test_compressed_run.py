"""End-to-end runs of a recogniser with compressed updates and models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray import experiment
from fedray.core.algorithm import Algorithm
from fedray.core.compression.links import Link
from fedray.experiment import Config
from tests import speech
from tests.engine.runs import rows, same_on_more_actors_and_resumed

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.long]
ROUNDS = 3
SPARSE = {"upload": {"kind": "topk", "share": 0.1, "values": "int8"}, "download": "int8"}


def settings(corpus: Path) -> dict[str, Any]:
    return speech.settings(corpus, rounds=ROUNDS, **SPARSE)


def built(given: dict[str, Any]) -> tuple[Config, Algorithm]:
    config, source = experiment.load(given)
    return config, experiment.build_algorithm(config, experiment.build_data(config, source)[0])


@pytest.fixture(scope="module")
def straight(corpus: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> fedray.Result:
    return fedray.run(settings(corpus), out=tmp_path_factory.mktemp("straight") / "run")


def test_every_byte_is_counted(straight: fedray.Result, corpus: Path) -> None:
    config, algorithm = built(settings(corpus))
    size = algorithm.task.layout.trainable
    up, down = Link(config.upload.code, algorithm.tensors()), Link(config.download, algorithm.tensors())
    table = rows(straight.folder)
    clients, scalars = 3, 8 * 2  # bytes of examples and loss
    assert [row["traffic/up_bytes"] for row in table] == [clients * (up.size(size) + scalars)] * ROUNDS
    assert up.size(size) < 4 * size / 20
    assert table[0]["traffic/down_bytes"] >= clients * (down.size(size) + 8)  # plus the language model, once


def test_any_number_of_actors_and_a_resume_give_the_same_bits(
    straight: fedray.Result, corpus: Path, tmp_path: Path
) -> None:
    same_on_more_actors_and_resumed(settings(corpus), straight.folder, tmp_path / "two")
