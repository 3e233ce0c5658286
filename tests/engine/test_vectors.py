"""Vectors sent along with the parameters: the mean by hand, the same bits for any placement, every byte counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.strategies import STRATEGIES, Strategy
from fedray.core.types import Received
from fedray.engine.jobs.work import arrive
from fedray.engine.round.cohort import sample
from fedray.runs.folder import RunFolder
from tests.engine import toys
from tests.engine.runs import same

pytestmark = pytest.mark.usefixtures("cluster")
OPTIONS: dict[str, Any] = {"algorithm": toys.Beside, "rounds": 2, "data": toys.ToyData(4), "cohort": 3, "lanes": 2}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    toys.play(folder, **OPTIONS)
    return folder


def sent(assignment: Any, round: int, total: np.ndarray) -> np.ndarray:
    """The mean of the vectors `sum` that a round's cohort sends along with delta, in float64."""
    data = assignment.program.data
    cohort = sample(data.client_ids(), assignment.plan.cohort, data.cost, assignment.program.seed, round)
    return np.mean([data.load(client)[:10].astype(np.float64) + 0.1 * total for client in cohort], axis=0)


def test_the_means_are_those_by_hand(straight: Path, tmp_path: Path) -> None:
    """Three of four clients answer, so the server adds 3/4 of each mean."""
    assignment, total = toys.assignment(tmp_path, **OPTIONS), np.zeros(10)
    for round in range(2):
        total = total + 0.75 * sent(assignment, round, total)
        extra = RunFolder(straight).load(round + 1).state.extra
        np.testing.assert_allclose(extra["sum"], total, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(extra["count"], [0.75 * (round + 1)])


def test_the_parameters_are_those_without_vectors(straight: Path, tmp_path: Path) -> None:
    toys.play(tmp_path, **OPTIONS | {"algorithm": toys.Toy})
    for round in (1, 2):
        with_vectors, without = (RunFolder(folder).load(round).state.params for folder in (straight, tmp_path))
        assert with_vectors.tobytes() == without.tobytes()


def test_every_byte_is_counted(straight: Path) -> None:
    """Up: 1,000 + 11 float32 and two scalars per client.

    Down: the same numbers and one setting; for an unprepared client also the assets, and round 0's numbers if later.
    """
    table = RunFolder(straight).rows("metrics.jsonl")
    down = 4 * 1011 + 8
    assert all(row["traffic/up_bytes"] == 3 * (4 * 1011 + 16) for row in table)
    assert table[0]["traffic/down_bytes"] == 3 * down + 3 * 24
    assert table[1]["traffic/down_bytes"] == 3 * down + table[1]["clients/prepared"] * (down + 24)


@pytest.mark.parametrize(
    "options", [{"actors": 2}, pytest.param({"placement": "dedicated"}, marks=pytest.mark.long)], ids=str
)
def test_any_placement_gives_the_same_bits(straight: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    toys.play(tmp_path, **OPTIONS | options)
    same(tmp_path, straight, 2)
    assert all(
        RunFolder(tmp_path).load(2).state.extra[name].tobytes()
        == RunFolder(straight).load(2).state.extra[name].tobytes()
        for name in ("sum", "count")
    )


@pytest.mark.parametrize(
    "kind", ["layerwise_pruning", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("median", "krum"))]
)
def test_strategies_that_see_the_whole_cohort_weigh_vectors_too(tmp_path: Path, kind: str) -> None:
    strategy: Strategy = STRATEGIES[kind]()
    toys.play(tmp_path, strategy=strategy, **OPTIONS | {"rounds": 1})
    given = toys.assignment(tmp_path, **OPTIONS)
    data = given.program.data
    cohort = sample(data.client_ids(), given.plan.cohort, data.cost, given.program.seed, 0)
    values = np.array([data.load(client)[:10] for client in cohort])
    found = RunFolder(tmp_path).load(1).state.extra
    mean = found["sum"] / np.float32(0.75)
    if kind == "median":
        np.testing.assert_allclose(mean, np.median(values, axis=0), rtol=1e-6)
    else:  # one of three stays: Krum's choice, or the one whose vector has the middle deviation
        assert np.isclose(mean, values, rtol=1e-6).all(axis=1).sum() == 1
    np.testing.assert_array_equal(found["count"], [0.75])


SILENT = [("median", "vectors")]
SILENT_LONG = [("by_examples", ""), ("by_examples", "vectors"), ("median", ""), ("layerwise_pruning", "vectors")]


@pytest.mark.parametrize(
    ("kind", "what"), [*SILENT, *(pytest.param(*case, marks=pytest.mark.long) for case in SILENT_LONG)]
)
def test_clients_may_send_no_parameters(tmp_path: Path, kind: str, what: str) -> None:
    options = OPTIONS | {"algorithm": toys.Silent, "rounds": 1, "lanes": 1}
    toys.play(tmp_path, strategy=STRATEGIES[kind](), settings=toys.ToySettings(trouble=what), **options)
    (row,) = RunFolder(tmp_path).rows("metrics.jsonl")
    assert row["traffic/up_bytes"] == 3 * (16 + (20 if what else 0))
    assert row["clients/ok"] == 3
    assert row["clients/effective"] == (1 if kind == "layerwise_pruning" and what else 3)


def test_what_arrives_cannot_be_changed() -> None:
    algorithm = toys.Beside(toys.ToySettings(), toys.Parts())
    received: Received = arrive(algorithm.broadcast(algorithm.init(None), 0), 0, {}, "cpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="read-only"):
        received.vectors["sum"][0] = 1
