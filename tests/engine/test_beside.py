"""Runs beside others on one Ray: each waits for its room in words, and has the bits of a run alone."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from ray.util import placement_group_table

from fedray.core.types import RunError
from fedray.engine.driver import session
from fedray.engine.driver.interrupts import Terminated
from fedray.engine.telemetry.events import Event
from fedray.engine.telemetry.progress import Display
from fedray.runs.folder import RunFolder
from fedray.runs.standing import ATTACH, Standing, standing
from tests.engine import toys, waiting
from tests.engine.runs import same
from tests.engine.waiting import Waiting, appears

ROUNDS = 2
HELD = {"actors": 1, "cpus": 4.0}  # all cores of the tests' Ray
SECONDS = 120  # for anything that a run does, on a busy machine


@pytest.fixture(autouse=True)
def shipped(cluster: None) -> None:
    session.ship(waiting)


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    toys.play(tmp_path / "alone", rounds=ROUNDS)
    return tmp_path / "alone"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Callable[[], object]], list[str]]]:
    """A function that has another called once a run says something; it returns the list of all that runs say."""
    said: list[str] = []
    calls: list[tuple[str, Callable[[], object]]] = []

    def say(display: Display, text: str) -> None:
        said.append(text)
        for pattern, call in list(calls):
            if re.match(pattern, text):
                calls.remove((pattern, call))
                call()

    monkeypatch.setattr(Display, "say", say)

    def when(pattern: str, call: Callable[[], object]) -> list[str]:
        calls.append((pattern, call))
        return said

    yield when


def holds(folder: Path, **options: object) -> None:
    """Start a run that holds its cores until the file `go` appears beside its folder."""
    settings = toys.ToySettings(folder=str(folder.parent))
    session.detach(toys.assignment(folder, ROUNDS, algorithm=Waiting, settings=settings, **HELD | options))
    appears(folder.parent / "waits")


def ends(folder: Path) -> Standing:
    until = time.monotonic() + SECONDS
    while (found := standing(RunFolder(folder))).state != "finished":
        assert time.monotonic() < until, found
        time.sleep(0.1)
    return found


def groups() -> list[str]:
    return [group["name"] for group in placement_group_table().values() if group["state"] != "REMOVED"]


def gone() -> None:
    until = time.monotonic() + 10
    while any("/" in name for name in groups()):
        assert time.monotonic() < until, groups()
        time.sleep(0.1)


def described(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text("name: toy\n")


@pytest.mark.nightly
def test_a_run_waits_until_another_has_ended(
    tmp_path: Path, alone: Path, told: Callable[[str, Callable[[], object]], list[str]]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    described(first)
    holds(first)
    said = told("waiting for room", (tmp_path / "go").touch)
    assert toys.run(second, rounds=ROUNDS, **HELD)["rounds"] == ROUNDS
    assert said[0] == f"waiting for room for the client actor (4 cores): run {first} holds 4 cores"
    ends(first)
    same(second, alone, ROUNDS)
    same(first, alone, ROUNDS)
    gone()


@pytest.mark.nightly
def test_an_automatic_number_of_actors_is_what_finds_room(
    tmp_path: Path, alone: Path, told: Callable[[str, Callable[[], object]], list[str]]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    described(first)
    holds(first, cpus=2.0)
    assignment = toys.assignment(second, ROUNDS, actors=4, cpus=1.0)
    engine = replace(assignment.plan.engine, actors="auto", cpus_per_client=1.0)
    said = told("round 2", (tmp_path / "go").touch)
    session.run(replace(assignment, plan=replace(assignment.plan, engine=engine)))
    assert said[:2] == [
        "2 of 4 client actors find room beside others; the bits are the same",
        "starting 2 client actors",
    ]
    ends(first)
    same(second, alone, ROUNDS)


@pytest.mark.nightly
@pytest.mark.parametrize("detached", [True, False])
def test_a_killed_run_holds_nothing(
    tmp_path: Path, alone: Path, detached: bool, told: Callable[[str, Callable[[], object]], list[str]]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    def kill() -> None:
        os.kill(RunFolder(first).read_json(ATTACH)["pid"], signal.SIGKILL)

    def watched() -> None:
        settings = toys.ToySettings(folder=str(tmp_path))
        with pytest.raises(RunError, match="the driver of .* died"):
            toys.run(first, rounds=ROUNDS, algorithm=Waiting, settings=settings, **HELD)

    watcher = threading.Thread(target=watched)
    if detached:
        holds(first)
    else:
        watcher.start()
        appears(tmp_path / "waits")
    told("waiting for room", kill)
    assert toys.run(second, rounds=ROUNDS, **HELD)["rounds"] == ROUNDS
    if not detached:
        watcher.join()
    same(second, alone, ROUNDS)
    gone()


@pytest.mark.nightly
def test_three_at_once_run_in_turn(tmp_path: Path, alone: Path) -> None:
    runs = [tmp_path / f"run-{number}" for number in range(3)]
    for run in runs:
        described(run)
        session.detach(toys.assignment(run, ROUNDS, **HELD))
    for run in runs:
        ends(run)
        same(run, alone, ROUNDS)
    gone()


class Other:
    def ping(self) -> None:
        """Answer, as the actor of a program that is not fedray's."""


@pytest.mark.nightly
@pytest.mark.parametrize("signal_sent", [signal.SIGINT, signal.SIGTERM])
def test_whoever_waits_can_be_ended_at_once(
    tmp_path: Path, signal_sent: signal.Signals, told: Callable[[str, Callable[[], object]], list[str]]
) -> None:
    other = ray.remote(num_cpus=4)(Other).remote()
    ray.get(other.ping.remote())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore it
    sent = []

    def end() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal_sent)

    said = told("waiting for room", end)
    error = Terminated if signal_sent == signal.SIGTERM else KeyboardInterrupt
    try:
        with pytest.raises(error, match="stopped after round 0; `fedray resume"):
            toys.run(tmp_path / "run", rounds=ROUNDS, **HELD)
    finally:
        signal.signal(signal.SIGINT, before)
        ray.kill(other)
    assert time.monotonic() - sent[0] < 10, "on an idle machine a second"
    assert said[0] == "waiting for room for the client actor (4 cores): others hold 4 cores"
    gone()


@pytest.mark.nightly
def test_a_signal_that_comes_after_the_last_round_ends_the_caller_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a study, which would go on to its next run."""
    show = Display.show

    def shown(display: Display, event: Event) -> None:
        show(display, event)
        if event.kind == "end":
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Display, "show", shown)
    with pytest.raises(Terminated, match="run is finished, with results.json"):
        toys.run(tmp_path / "run", rounds=1)
    assert (tmp_path / "run" / "results.json").exists()
