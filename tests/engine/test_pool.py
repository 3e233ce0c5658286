"""The pool, with actors of a few lines of code."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import OutOfMemoryError

from fedray.core.types import RunError
from fedray.engine.actors import crew
from fedray.engine.actors import pool as pools
from fedray.engine.actors.hangs import Hangs
from fedray.engine.actors.pool import Pool
from fedray.engine.actors.stops import Stopped, Wish
from fedray.engine.driver import session
from fedray.engine.jobs.deaths import Death
from fedray.engine.jobs.job import Job, Workplace
from fedray.engine.settings import EngineSettings

EVICTED = (
    "1 worker(s) were killed due to the node running low on memory. Memory on the node was 15.00GB "
    "used / 15.80GB limit (0.95)\nMore"
)


class Worker:
    def ping(self, folder: str | None) -> tuple[str, str, int, int]:
        assert issubclass(Double, Job)  # imported here, so that no job waits for it
        return ray.get_runtime_context().get_node_id(), "cpu", os.getpid(), 0

    def run(self, job: Job[Any], *inputs: Any) -> Any:
        return job.run(None, *inputs)  # type: ignore[arg-type]

    def clear(self) -> None:
        pass


@dataclass(frozen=True)
class Double(Job[int]):
    number: int
    seconds: float = 0.0

    def run(self, workplace: Workplace) -> int:
        time.sleep(self.seconds)
        return 2 * self.number

    def after_death(self, node: str, death: Death, warn: Callable[[str], None]) -> Double:
        warn(f"{self} died")
        return self

    def at_work(self, node: str) -> str:
        return f"{self}"

    def __str__(self) -> str:
        return f"double {self.number}"


@pytest.fixture(scope="module", autouse=True)
def shipped(cluster: None) -> None:
    session.ship(sys.modules[__name__])  # the actors cannot import it


def make(slot: int) -> Any:
    return ray.remote(num_cpus=0.1, max_restarts=0)(Worker).remote()


def evicting(monkeypatch: pytest.MonkeyPatch, *calls: int) -> None:
    """Make these calls of `ray.get` by the pool, counted from 0, fail as if the actor had been evicted."""
    count = iter(range(1000))

    def get(reference: Any) -> Any:
        if next(count) in calls:
            raise OutOfMemoryError(EVICTED)
        return ray.get(reference)

    for module in (pools, crew):
        monkeypatch.setattr(module, "ray", SimpleNamespace(get=get, wait=ray.wait, nodes=ray.nodes, kill=ray.kill))


@pytest.fixture
def started(cluster: None) -> Callable[..., Pool]:
    return lambda **options: Pool(make, **({"size": 1, "replacements": 2} | options))


def test_while_all_actors_are_being_replaced_a_job_may_run_on_any_node(started: Callable[..., Pool]) -> None:
    pool = started()
    pool.crew.actors.clear()
    assert pool.neighbours(2) == [None, None]


@pytest.mark.nightly
def test_an_actor_that_the_memory_monitor_ends_is_replaced(
    started: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An actor dies at work (call 1), its replacement while starting (call 2): two deaths; the first costs a job."""
    evicting(monkeypatch, 1, 2)
    said: list[str] = []
    pool = started(warn=said.append)
    assert pool.run({"a": Double(1, cost=2.0), "b": Double(2, cost=1.0)}) == {"a": 2, "b": 4}
    assert pool.crew.replaced == 2
    why = (
        "Ray's memory monitor ended it, since its node ran low on memory (15.00GB used / 15.80GB "
        "limit): lower engine.actors to use less"
    )
    died = [f"a client actor died and is being replaced ({left} more allowed): {why}" for left in (1, 0)]
    assert said == [died[0], "double 1 died", died[1]]
    pool.close()


@pytest.mark.long
@pytest.mark.parametrize(("call", "words"), [
    (0, r"engine\.replacements allows no further one \(0 were replaced\): Ray's memory monitor ended it"),
    (1, r"engine\.replacements allows no further one \(0 were replaced\): Ray's memory monitor ended it"),
])  # fmt: skip
def test_without_replacements_it_ends_the_run(
    started: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, call: int, words: str
) -> None:
    evicting(monkeypatch, call)
    with pytest.raises(RunError, match=words):
        started(replacements=0).run({0: Double(1)})


@pytest.mark.nightly
def test_where_memory_does_not_suffice_for_all_fewer_start(
    started: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both actors of a pool of two die as they start (calls 0 and 1): the first is replaced, the second is not."""
    evicting(monkeypatch, 0, 1)
    said: list[str] = []
    pool = started(size=2, warn=said.append)
    assert pool.size == pool.crew.replaced == 1 and len(pool.crew.actors) == 1
    assert "Memory ran out 2 times, so the run continues with 1 actor and the same bits: set engine.actors=1" in said[1]
    assert pool.run({0: Double(1), 1: Double(2)}) == {0: 2, 1: 4}
    pool.close()


@pytest.mark.long
def test_one_that_is_silent_for_too_long_is_named_once(started: Callable[..., Pool]) -> None:
    """Until a job has ended, an actor has ten times the patience. The silent one answers after all."""
    said: list[str] = []
    pool = started(hangs=Hangs(0.2, said.append, "; ask it to end"))
    for seconds in (0.6, 0.0):
        assert pool.run({0: Double(1, seconds)}) == {0: 2} and said == []
    assert pool.run({0: Double(2, 3.5)}) == {0: 4}
    assert re.fullmatch(
        r"a client actor seems to hang at double 2: process \d+ on node \S+ has been silent for "
        r"\d\.\d s, such work usually takes "
        r"0\.\d s; ask it to end", said[0]
    ) and re.fullmatch(r"the client actor that seemed to hang has answered after \d s", said[1])  # fmt: skip
    assert len(said) == 2 and not pool.hangs.marked
    pool.close()


def test_who_is_to_end_now_waits_for_nobody(started: Callable[..., Pool]) -> None:
    pool, since = started(wish=lambda: Wish.NOW), time.monotonic()
    with pytest.raises(Stopped):
        pool.run({0: Double(1, 20.0)})
    assert time.monotonic() - since < 15
    for actor in pool.crew.actors.values():
        ray.kill(actor.handle)


def test_who_hangs_is_not_waited_for(started: Callable[..., Pool]) -> None:
    said: list[str] = []
    wish = lambda: Wish.AFTER_ROUND if said else Wish.NOT_YET  # noqa: E731
    pool = started(hangs=Hangs(0.05, said.append), wish=wish, warn=said.append)
    since = time.monotonic()
    with pytest.raises(Stopped):
        pool.run({0: Double(1, 60.0)})
    assert (
        "double" in said[0]
        and said[1] == "the run ends now, since a client actor hangs: the round is lost, the last checkpoint stays"
    )
    (actor,) = pool.crew.actors.values()
    pool.close()
    deadline = time.monotonic() + 15
    while Path(f"/proc/{actor.pid}").exists():
        assert time.monotonic() < deadline, "it was not killed"
        time.sleep(0.1)
    assert time.monotonic() - since < 30


def test_what_is_usual_goes_by_cost() -> None:
    hangs = Hangs(1.0)
    assert (
        hangs.usual("train", 3.0) is None and not hangs.late(0, "train", 3.0, 9.9) and hangs.late(0, "train", 3.0, 10.1)
    )
    for cost, seconds in ((1.0, 2.0), (2.0, 4.0), (5.0, 100.0)):
        hangs.done(0, "node", "train", cost, seconds)
    assert (
        hangs.usual("train", 3.0) == 6.0 and not hangs.late(0, "train", 3.0, 29.9) and hangs.late(0, "train", 3.0, 30.1)
    )
    for cost in (0.0, math.inf):
        hangs.done(0, "node", "other", cost, 0.01)
        assert (
            hangs.usual("other", 0.0) == 0.01
            and not hangs.late(0, "other", cost, 0.9)
            and hangs.late(0, "other", cost, 1.1)
        )
    hangs.mark(0, "train", 3.0, 31.0, "lane 1", "process 1")
    assert not hangs.late(0, "train", 3.0, 99.0) and hangs.late(1, "train", 3.0, 99.0), "the same is named once"


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_patience_must_be_above_0(seconds: float) -> None:
    with pytest.raises(ValueError, match="hang_warning_s must be above 0, not "):
        EngineSettings(hang_warning_s=seconds)
