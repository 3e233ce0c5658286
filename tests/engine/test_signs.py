"""Long work is no hang: actors give signs of life, and show the progress of what takes very long."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from fedray.engine.actors.actor import ClientActor
from fedray.engine.actors.crew import Actor
from fedray.engine.actors.hangs import Hangs
from fedray.engine.actors.pool import Flight, Pool
from fedray.engine.telemetry import signs
from tests.engine.test_pool import Double


def test_work_is_shown_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, alive, shown = [100.0], [], []
    monkeypatch.setattr(signs.time, "monotonic", lambda: now[0])
    listener = signs.Signs(lambda: alive.append(now[0]), lambda *said: shown.append(said))
    for done in range(6):
        listener(done, 6, "tokens of 2 texts")
        now[0] += 4.0
    listener(6, 6, "tokens of 2 texts")
    listener(0, 6, "tokens of 2 texts")  # the next batch begins
    now[0] += 1.0
    listener(6, 6, "tokens of 2 texts")
    what = f"tokens of 2 texts, process {os.getpid()}"
    assert shown == [(3, 6, what), (4, 6, what), (5, 6, what), (6, 6, what)]
    assert alive == [100.0, 108.0, 116.0, 124.0]


def test_an_actor_that_shows_progress_gives_signs_of_life() -> None:
    said: list[object] = []
    note = SimpleNamespace(remote=lambda kind, what: said.append(what["done"]))
    actor: Any = SimpleNamespace(driver=SimpleNamespace(note=note), _alive=lambda: said.append("alive"))
    report = ClientActor._progress(actor)
    report(1, 500, "training the seed model")
    report(2, 500, "training the seed model")  # too soon to tell
    assert said == [1, "alive"]


def test_an_actor_at_long_work_does_not_hang() -> None:
    said: list[str] = []
    hangs = Hangs(2.0, said.append)
    hangs.done(0, "node", "Double", 0.0, 0.1)
    flight: Flight[str, int] = Flight("job", Double(1), Actor(3, 0, None, "node", 7), None, 0.0, attentive=10.0)
    pool: Any = SimpleNamespace(_clock=100.0, _heard={("node", 7): 98.5, ("node", 8): 100.0}, hangs=hangs)
    assert Pool._look_at(pool, flight) is None and not said
    hangs.marked.add(3)
    Pool._look_at(pool, flight)
    assert said == ["the client actor that seemed to hang is at work"] and not hangs.marked
    pool._clock = 101.0
    assert hangs.late(3, "Double", 0.0, 2.5) and not hangs.late(3, "Double", 0.0, 2.0)
