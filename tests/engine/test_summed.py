"""Sums that stay on the actors: the bits of those that the driver merges, and what passes through the driver."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fedray.core.strategies import LayerwisePruning
from fedray.engine.actors.crew import Actor
from fedray.engine.actors.flights import Flights
from fedray.engine.jobs.job import Job
from fedray.engine.lane import tree
from tests.engine.privately import private
from tests.engine.runs import rows, same
from tests.engine.toys import SIZE, Beside, ToyData, play

pytestmark = pytest.mark.usefixtures("cluster")
MANY: dict[str, Any] = {"rounds": 2, "data": ToyData(60), "cohort": 50, "lanes": 20}


@pytest.fixture
def on_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "LIGHT_BYTES", 0.0)


KINDS: dict[str, dict[str, Any]] = {
    "one pass": {},
    "with vectors": {"algorithm": Beside},
    "two phases": {"strategy": LayerwisePruning()},
    "whole numbers": private("skellam"),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind != "one pass")) for kind in KINDS]
)
def test_actors_merge_with_the_bits_of_the_driver(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    options = MANY | KINDS[kind]
    play(tmp_path / "driver", **options)
    request.getfixturevalue("on_actors")
    play(tmp_path / "actors", actors=3, **options)
    same(tmp_path / "driver", tmp_path / "actors", round=2, but="engine/driver_bytes")


@pytest.mark.usefixtures("on_actors")
def test_one_vector_passes_through_the_driver(tmp_path: Path) -> None:
    play(tmp_path, **MANY)
    assert [row["engine/driver_bytes"] for row in rows(tmp_path)] == [4 * SIZE] * 2


@pytest.mark.usefixtures("on_actors")
def test_an_actor_a_client(tmp_path: Path) -> None:
    options = {"rounds": 1, "data": ToyData(12), "cohort": 12, "lanes": 10}
    play(tmp_path / "pooled", **options)
    play(tmp_path / "dedicated", placement="dedicated", **options)
    same(tmp_path / "pooled", tmp_path / "dedicated", round=1)


def test_jobs_run_on_the_node_that_they_are_near_to_while_it_has_idle_actors() -> None:
    def job(near: str | None, cost: float) -> Job[Any]:
        return cast(Job[Any], SimpleNamespace(near=near, cost=cost, holder=None, slot=None, alone=False))

    flights = Flights({"a1": job("a", 9), "a2": job("a", 8), "b1": job("b", 7), "any": job(None, 1)})
    on_a, on_b = (Actor(number, number, None, node) for number, node in enumerate("ab"))
    assert flights.next(on_a, (), {"a", "b"}) == "a1" and flights.next(on_b, (), {"a", "b"}) == "b1"
    flights.waiting.remove("b1")
    assert flights.next(on_b, (), {"a", "b"}) == "any"
    flights.waiting.remove("any")
    assert flights.next(on_b, (), {"a", "b"}) is None, "an idle actor on a takes it"
    assert flights.next(on_b, (), {"b"}) == "a1", "nobody on a is idle"
