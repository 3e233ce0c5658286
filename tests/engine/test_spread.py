"""Parts of `init` are computed on all client actors: the same bits for any number of actors, and if one dies."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from fedray.core.seeds import seed_all
from fedray.core.types import RunError, Server, ServerState, Vector
from fedray.engine.actors import spread
from fedray.engine.actors.spread import Spread
from fedray.engine.driver import session
from fedray.engine.driver.driver import Assignment
from fedray.engine.jobs.deaths import Cause, Death
from fedray.engine.jobs.job import InitPart
from tests.engine import toys

STEPS, PARTS = 8, 3


class Spreading(toys.Toy):
    """Its init takes steps of three parts. `settings.troubled` names the parts that make trouble, as `step-number`."""

    def init(self, server: Server) -> ServerState:
        params = np.zeros(toys.SIZE, np.float32)
        assert server.spread is not None
        for step in range(STEPS):
            for change in server.spread(params, [(step, number) for number in range(PARTS)]):
                params = params + change
        if self.settings.trouble == "die once":
            self.await_replacement(server, params)
        return ServerState(params, {"rounds": 0})

    def await_replacement(self, server: Server, params: Vector) -> None:
        assert server.spread is not None
        deadline = time.monotonic() + 120
        while len(list(Path(self.settings.folder).glob("pid-*"))) < 3:
            assert time.monotonic() < deadline, "the replacement got no parts"
            server.spread(params, [(STEPS, number) for number in range(PARTS)])
            time.sleep(0.05)

    def init_part(self, server: Server, params: Vector, part: Any) -> Vector:
        if self.settings.folder:
            (Path(self.settings.folder) / f"pid-{os.getpid()}").touch()
        if "{}-{}".format(*part) in self.settings.troubled:
            dead = Path(self.settings.folder) / "dead"
            if self.settings.trouble == "raise":
                raise ValueError(f"part {part} has no transcript")
            if not dead.exists():
                dead.touch()
                os._exit(1)
        seed_all(server.seed, *part)
        noise = np.random.standard_normal(toys.SIZE).astype(np.float32)
        return np.asarray(noise + 0.1 * params + server.data, np.float32)


@pytest.fixture(scope="module", autouse=True)
def shipped(in_process: None) -> None:
    session.ship(sys.modules[__name__])  # the actors cannot import it


def spreading(folder: Path, actors: int, **settings: Any) -> Assignment:
    settings = {"folder": str(folder), **settings}
    folder.mkdir(parents=True, exist_ok=True)
    return toys.assignment(
        folder / "run", 0, actors, toys.ToySettings(**settings), algorithm=Spreading, evaluation={}, cpus=0.5
    )


def theta_0(given: Assignment) -> bytes:
    session.run(given)
    return toys.RunFolder(given.folder).load(0).state.params.tobytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, shipped: None) -> bytes:
    return theta_0(spreading(tmp_path_factory.mktemp("alone"), 1))


@pytest.mark.parametrize("actors", [2, 3, 4])
def test_any_number_of_actors_gives_the_same_bits(alone: bytes, tmp_path: Path, actors: int) -> None:
    assert theta_0(spreading(tmp_path, actors)) == alone


@pytest.mark.long
def test_actors_of_ray_give_the_same_bits(alone: bytes, tmp_path: Path, on_ray: None) -> None:
    assert theta_0(spreading(tmp_path, 3)) == alone
    assert len(list(tmp_path.glob("pid-*"))) == PARTS, "an actor had no part"


@pytest.mark.nightly
def test_a_killed_actor_is_replaced_and_its_parts_are_computed_again(
    alone: bytes, tmp_path: Path, on_ray: None
) -> None:
    """The actor that helps is killed, since part 0 goes to it."""
    assert theta_0(spreading(tmp_path, 2, trouble="die once", troubled=("3-0",))) == alone
    assert (tmp_path / "dead").exists()


@pytest.mark.nightly
def test_when_the_actor_that_trains_dies_another_starts_again(alone: bytes, tmp_path: Path, on_ray: None) -> None:
    assert theta_0(spreading(tmp_path, 2, trouble="die once", troubled=("3-1",))) == alone
    assert (tmp_path / "dead").exists()


def test_an_error_in_a_part_ends_the_run_in_its_words(tmp_path: Path) -> None:
    with pytest.raises((ValueError, RunError), match=r"part \(3, 0\) has no transcript"):
        session.run(spreading(tmp_path, 2, trouble="raise", troubled=("3-0",)))


class Desk:
    """A stand-in for the driver."""

    def __init__(self, actors: dict[int, Any]) -> None:
        self.actors, self.lost = actors, dict[int, Death]()

    def idle(self, node: str, lost: dict[int, Death]) -> dict[int, Any]:
        self.lost |= lost
        return self.actors

    def told(self) -> dict[int, Death]:
        return self.lost


class Slow:
    """An actor that is silent in its second call."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self, job: InitPart, params: Vector) -> list[float]:
        self.calls += 1
        time.sleep(30.0 if self.calls == 2 else 0.0)
        return [part * float(params.sum()) for part in job.parts]


@pytest.mark.long
def test_an_actor_that_is_silent_is_lost(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(spread, "LOOK_SECONDS", 0.0)
    slow = ray.remote(num_cpus=0.1)(Slow).remote()
    desk = ray.remote(num_cpus=0.1)(Desk).remote({7: slow})
    spreads = Spread(desk, lambda params, parts: [part * float(params.sum()) for part in parts])
    for _ in range(4):
        assert spreads(np.ones(2, np.float32), [1, 2, 3]) == [2.0, 4.0, 6.0]
        time.sleep(0.1)
    lost = ray.get(desk.told.remote())
    assert list(lost) == [7] and lost[7].cause is Cause.HANG
    assert lost[7].why == "it was silent for 1 s while the seed model was trained"
    for actor in (slow, desk):
        ray.kill(actor)
