"""Strategies that see the whole cohort, in the engine: with any placement, and with a death between the phases."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.strategies import STRATEGIES, ByExamples, Strategy, Uniform
from fedray.engine.lane import held
from fedray.runs.folder import RunFolder
from tests.engine import toys
from tests.engine.runs import bits, first_round, same

pytestmark = pytest.mark.usefixtures("cluster")

FIRST = np.r_[0:300, 700:1000]  # the toy's layers
SECOND = np.r_[300:700]


def median(deltas: np.ndarray) -> np.ndarray:
    return np.median(deltas, axis=0)


def trimmed(deltas: np.ndarray) -> np.ndarray:
    """The mean without the smallest and the largest of six values."""
    return np.sort(deltas, axis=0)[1:-1].mean(axis=0)


def krum(deltas: np.ndarray) -> np.ndarray:
    """Krum's choice among six clients, one of them suspected: the distances to the three nearest count."""
    distances = np.square(deltas[:, None] - deltas[None]).sum(-1)
    scores = [np.sort(np.delete(row, i))[:3].sum() for i, row in enumerate(distances)]
    return deltas[int(np.argmin(scores))]


def pruned(deltas: np.ndarray) -> np.ndarray:
    """The mean of each layer without the farthest and the nearest of six clients."""
    result = np.zeros(deltas.shape[1])
    for layer in (FIRST, SECOND):
        order = np.argsort(np.linalg.norm((deltas - deltas.mean(0))[:, layer], axis=1))
        result[layer] = deltas[np.sort(order[1:-1])][:, layer].mean(0)
    return result


KINDS: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
    "median": ({}, median),
    "trimmed_mean": ({"trim": 0.17}, trimmed),
    "krum": ({"byzantine": 0.17}, krum),
    "layerwise_pruning": ({"pruning": 0.17}, pruned),
}


def strategy(kind: str) -> Strategy:
    return STRATEGIES[kind](**KINDS[kind][0])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Callable[[str], Path]:
    """A function from a kind of strategy to the folder of two rounds with it, played on one actor."""

    @cache
    def folder(kind: str) -> Path:
        made = tmp_path_factory.mktemp(kind)
        toys.play(made, strategy=strategy(kind), rounds=2)
        return made

    return folder


@pytest.fixture(
    params=[pytest.param(kind, marks=[] if kind == "layerwise_pruning" else pytest.mark.long) for kind in KINDS]
)
def straight(request: pytest.FixtureRequest, played: Callable[[str], Path]) -> tuple[str, Path]:
    return request.param, played(request.param)


def test_the_first_round_is_the_float64_reference(straight: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = straight
    deltas, learnt, before = first_round(toys.assignment(tmp_path, strategy=strategy(kind)))
    expected = before + KINDS[kind][1](np.array(list(deltas.values()), np.float64)) + learnt
    np.testing.assert_allclose(RunFolder(folder).load(1).state.params, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("options", [{"actors": 2}, {"hold_gb": 0.0}], ids=str)
def test_the_same_bits_with_two_actors_or_all_on_disk(
    straight: tuple[str, Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    kind, folder = straight
    toys.play(tmp_path, strategy=strategy(kind), rounds=2, **options)
    same(tmp_path, folder, 2)


@pytest.mark.nightly
def test_actors_of_ray_with_all_on_disk_give_the_same_bits(played: Callable[[str], Path], tmp_path: Path) -> None:
    toys.run(tmp_path, strategy=strategy("layerwise_pruning"), rounds=2, actors=2, hold_gb=0.0)
    same(tmp_path, played("layerwise_pruning"), 2)


@pytest.mark.parametrize("kind", ["median", pytest.param("krum", marks=pytest.mark.long)])
def test_the_bits_of_any_blocks(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block of all 1,000 parameters and seven smaller blocks give the same bits."""
    toys.play(tmp_path / "whole", strategy=strategy(kind), rounds=2)
    monkeypatch.setattr(held, "BLOCK_BYTES", 0)
    monkeypatch.setattr(held, "LEAST_BLOCK", 150)
    toys.play(tmp_path / "cut", strategy=strategy(kind), rounds=2, actors=2)
    same(tmp_path / "cut", tmp_path / "whole", 2)


def test_who_was_left_out_is_written_down(straight: tuple[str, Path]) -> None:
    kind, folder = straight
    found = RunFolder(folder).rows("left_out.jsonl")
    table = RunFolder(folder).rows("metrics.jsonl")
    expected = {"krum": 5, "layerwise_pruning": None}.get(kind, 0)  # Krum chooses one of six
    for row in table:
        mine = [entry for entry in found if entry["round"] == row["round"]]
        assert len(mine) == row["clients/left_out"]
        if expected is not None:
            assert len(mine) == expected
        else:
            assert sum(len(entry["layers"]) for entry in mine) == 4  # two of six in each of two layers


@pytest.mark.parametrize("kind", ["uniform", "by_examples", "median"])
def test_a_client_that_learnt_nothing_is_left_out_by_name(kind: str, tmp_path: Path) -> None:
    idle = toys.ToySettings(troubled=("client-00",))
    weigh = {"uniform": Uniform(), "by_examples": ByExamples()}.get(kind) or strategy(kind)
    toys.play(tmp_path, algorithm=toys.Idle, settings=idle, strategy=weigh, rounds=1, data=toys.ToyData(3), cohort=3)
    (row,) = RunFolder(tmp_path).rows("metrics.jsonl")
    (left,) = RunFolder(tmp_path).rows("left_out.jsonl")
    assert row["clients/left_out"] == 1 and row["clients/ok"] == 3 and row["clients/effective"] == pytest.approx(2)
    assert left == {"round": 1, "client": "client-00", "layers": ["first", "second"]}


@pytest.mark.nightly
def test_an_actor_that_dies_between_the_phases_changes_no_bit(played: Callable[[str], Path], tmp_path: Path) -> None:
    deadly = toys.DeadlyPruning(pruning=0.17, folder=str(tmp_path))
    toys.run(tmp_path / "killed", strategy=deadly, rounds=2, actors=2)
    assert (tmp_path / "dead-between").exists()
    same(tmp_path / "killed", played("layerwise_pruning"), 2)


@pytest.mark.nightly
def test_dedicated_actors_give_the_same_bits_also_when_one_is_killed(tmp_path: Path) -> None:
    """With an actor per client, a dead one is replaced, and the others keep what they hold."""
    options: dict[str, Any] = {
        "strategy": strategy("layerwise_pruning"),
        "rounds": 2,
        "data": toys.ToyData(4),
        "cohort": 3,
        "lanes": 2,
    }
    toys.play(tmp_path / "pooled", **options)
    trouble = toys.ToySettings(trouble="die once", troubled=("client-01", "client-02"), folder=str(tmp_path))
    toys.run(tmp_path / "killed", settings=trouble, placement="dedicated", **options)
    assert list(tmp_path.glob("dead-*"))
    same(tmp_path / "killed", tmp_path / "pooled", 2)


@pytest.mark.parametrize("trouble", [pytest.param("nan", marks=pytest.mark.long), "raise"])
def test_one_that_fails_is_left_out_before_any_median(tmp_path: Path, trouble: str) -> None:
    settings = toys.ToySettings(trouble=trouble, troubled=("client-03",))
    toys.play(tmp_path, strategy=strategy("median"), settings=settings, failures_allowed=0.2, rounds=2)
    failed = {failure["client"] for failure in RunFolder(tmp_path).rows("failures.jsonl")}
    assert failed == {"client-03"}
    assert np.isfinite(np.frombuffer(bits(tmp_path, 2)[0], np.float32)).all()


def test_a_client_that_trained_on_nothing_has_no_vote(tmp_path: Path) -> None:
    deltas, learnt, before = first_round(toys.assignment(tmp_path / "hand", strategy=strategy("median")))
    idle = tuple(sorted(deltas)[:2])
    options: dict[str, Any] = {"strategy": strategy("median"), "settings": toys.ToySettings(troubled=idle)}
    toys.play(tmp_path / "run", rounds=1, algorithm=toys.Idle, **options)
    (row,) = RunFolder(tmp_path / "run").rows("metrics.jsonl")
    assert (row["clients/ok"], row["clients/failed"], row["clients/effective"]) == (6, 0, 4)
    expected = before + median(np.array([deltas[name] for name in deltas if name not in idle], np.float64)) + learnt
    np.testing.assert_allclose(RunFolder(tmp_path / "run").load(1).state.params, expected, rtol=2e-6, atol=2e-6)
