"""End-to-end runs whose clients keep a part of the model: traffic, bits, resumes, compression, privacy, scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedray
from fedray import experiment
from fedray.algorithms.base import TaskAlgorithm
from fedray.config.source import ConfigError
from fedray.core.algorithm import Algorithm
from fedray.core.parameters import Layout
from fedray.engine.lane.uplink import LOST
from fedray.runs.folder import RunFolder
from fedray.storage import serialize
from fedray.training.personal import PART
from tests import keywords
from tests.engine.runs import an_actor_dies, rows, same, same_on_more_actors_and_resumed

pytestmark = pytest.mark.usefixtures("in_process")
ROUNDS = 3
PRIVATE = {"kind": "skellam", "noise": 1.0, "delta": 1e-5, "bits": 16}


def settings(clips: Path, actors: int = 1, together: int | str = "never", **changes: Any) -> dict[str, Any]:
    algorithm = {"kind": "fedper", "client": {"lr": 0.1, "batch": 4, "epochs": 1}, "pretrain": {"steps": 0}}
    engine = {"lanes": 2, "actors": actors, "cpus_per_client": 0.5, "vectorise": together}
    scores = {"shards": 2, "personal_every": 1, "personal_final": True}
    return keywords.settings(clips, **{"algorithm": algorithm, "engine": engine, "evaluation": scores, **changes})


@pytest.fixture(scope="module")
def straight(clips: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> fedray.Result:
    return fedray.run(settings(clips), out=tmp_path_factory.mktemp("straight") / "run")


def built(given: dict[str, Any]) -> Algorithm:
    config, source = experiment.load(given)
    return experiment.build_algorithm(config, experiment.build_data(config, source)[0])


def layout(given: dict[str, Any]) -> Layout:
    algorithm = built(given)
    assert isinstance(algorithm, TaskAlgorithm)
    return algorithm.task.layout


def states(run: Path) -> list[dict[str, Any]]:
    return [serialize.load(path) for path in sorted((run / "states").rglob("*.pt"))]


def test_what_stays_is_no_traffic_and_in_the_clients_states(straight: fedray.Result, clips: Path) -> None:
    found, table = layout(settings(clips)), RunFolder(straight.folder).rows("metrics.jsonl")
    own, clients, scalars = found.size - found.moving, 3, 8 * 2  # bytes of examples and loss
    assert [row["traffic/up_bytes"] for row in table] == [clients * (4 * found.moving + scalars)] * ROUNDS
    down = [row["traffic/down_bytes"] - clients * (4 * found.moving + 8) for row in table]
    new = [bytes_ / (4 * own) for bytes_ in down]  # theta_0's part goes to a client once
    assert new[0] == clients and sum(new) == straight.results["personal"]["clients"]
    parts = [state[PART] for state in states(straight.folder)]
    assert parts and all(part.shape == (own,) for part in parts)
    assert len({part.tobytes() for part in parts}) == len(parts)
    theta = [RunFolder(straight.folder).load(round).state.params for round in (0, ROUNDS)]
    np.testing.assert_array_equal(*(params[found.personal] for params in theta))


def test_personal_models_are_scored_in_rounds_and_at_the_end(straight: fedray.Result) -> None:
    assert straight.results["personal"]["dev/loss"] < straight.results["best"]["dev/loss"]
    assert all(row["personal/accuracy"] is not None for row in RunFolder(straight.folder).rows("metrics.jsonl"))


def test_any_number_of_actors_and_a_resume_give_the_same_bits(
    straight: fedray.Result, clips: Path, tmp_path: Path
) -> None:
    same_on_more_actors_and_resumed(settings(clips), straight.folder, tmp_path / "three", actors=3)


@pytest.mark.long
def test_side_by_side(straight: fedray.Result, clips: Path, tmp_path: Path) -> None:
    """Up to float rounding, clients end where they end alone; with one actor or three the bits are the same."""
    quiet = {"model": {"kind": "crnn", "size": "tiny", "dropout": 0.0}}
    runs = {
        name: fedray.run(settings(clips, actors, together, **quiet), out=tmp_path / name).folder
        for name, actors, together in (("alone", 1, "never"), ("one", 1, 3), ("three", 3, 3))
    }
    same(runs["one"], runs["three"], ROUNDS)
    for one, other in zip(states(runs["alone"]), states(runs["one"]), strict=True):
        np.testing.assert_allclose(one[PART], other[PART], rtol=1e-3, atol=1e-5)


@pytest.mark.long
def test_encoded_updates(straight: fedray.Result, clips: Path, tmp_path: Path) -> None:
    coded = fedray.run(settings(clips, upload="int8", download="int8"), out=tmp_path / "run").folder
    found = layout(settings(clips))
    for row, plain in zip(rows(coded), rows(straight.folder), strict=True):
        assert row["traffic/up_bytes"] < plain["traffic/up_bytes"] / 3
    for state in states(coded):
        assert state[PART].size == found.size - found.moving and state[LOST]["delta"].size == found.moving


@pytest.mark.nightly
def test_private_updates_with_integer_noise(clips: Path, tmp_path: Path) -> None:
    given = settings(clips, privacy=PRIVATE, strategy="uniform", rounds=2)
    run = fedray.run(given, out=tmp_path / "run").folder
    found, params = layout(given), RunFolder(run).load(2).state.params
    first = RunFolder(run).load(0).state.params
    assert (params[: found.moving] != first[: found.moving]).all()  # noise is in all that travels, and in nothing else
    np.testing.assert_array_equal(params[found.personal], first[found.personal])
    assert all(np.isfinite(state[PART]).all() for state in states(run))


def test_without_personal_scores_it_is_refused(clips: Path) -> None:
    for kind, what in (("fedper", "algorithm.kind fedper"), ("fedavg", "algorithm.personal")):
        changes = {"evaluation": {"shards": 2}}
        if kind == "fedavg":
            changes["algorithm"] = {"kind": "fedavg", "personal": ["out.*"]}
        with pytest.raises(ConfigError, match=f"{what} is judged by personal scores alone: set evaluation.personal"):
            experiment.check_setup(*experiment.load(settings(clips, **changes)))


@pytest.mark.long
def test_a_killed_actor_changes_no_bit(straight: fedray.Result, clips: Path, tmp_path: Path, on_ray: None) -> None:
    folder = tmp_path / "run"
    killed = an_actor_dies(folder)
    fedray.run(settings(clips, actors=2), out=folder)
    assert killed
    same(folder, straight.folder, ROUNDS)
