"""If inputs or results are lost, the work that needs them is done again, with inputs put again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import ObjectLostError

from fedray.core.types import Server, ServerState
from fedray.engine.actors.actor import ClientActor
from fedray.engine.actors.pool import Pool
from fedray.engine.driver import session
from fedray.engine.jobs.job import Init
from fedray.engine.lane.personal import evaluate_all
from fedray.engine.round.rounds import Rounds
from fedray.runs.folder import Progress
from tests.engine import toys


class Finishing(toys.Toy):
    """A toy whose server changes the model after the aggregation."""

    def server_finish(self, server: Server, state: ServerState) -> ServerState:
        return ServerState(state.params + np.float32(1), state.extra)


@pytest.fixture(scope="module")
def played(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rounds, list[str]]]:
    """Rounds that this process plays on a Ray actor, so that it owns their inputs; and the list of warnings."""
    session.ship(toys)
    session.ship(sys.modules[__name__])
    folder = tmp_path_factory.mktemp("rounds")
    mine = toys.assignment(folder, algorithm=Finishing, data=toys.ToyData(3), cohort=3)
    program, assets = ray.put(mine.program), ray.put(dict(mine.assets))

    def make(slot: int) -> Any:
        remote = ray.remote(num_cpus=0.5, max_restarts=0)(ClientActor)
        return remote.remote(program, assets, 0.0, 1e9, False, "lost-inputs", None)

    said: list[str] = []
    pool = Pool(make, 1, 2)
    rounds = Rounds(mine.program, mine.plan, pool, folder / "markers", 0, lambda kind, data: said.append(data["text"]))
    rounds.start(rounds.again(lambda: pool.run({0: Init()}))[0][0])
    yield rounds, said
    for actor in pool.crew.actors.values():
        ray.kill(actor.handle)


@pytest.fixture(scope="module")
def lost(played: object) -> Any:
    """A reference to an object that was lost with the process that owned it."""
    owner = ray.remote(num_cpus=0)(Owner).remote()
    (reference,) = ray.get(owner.put.remote())
    ray.kill(owner)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            ray.get(reference)
        except ObjectLostError:
            return reference
        time.sleep(0.2)
    raise AssertionError("the object stays")


class Owner:
    def put(self) -> list[Any]:
        return [ray.put(np.zeros(toys.SIZE))]


def prepare(rounds: Rounds, progress: Progress) -> Any:
    lanes, sent = rounds.prepare(["client-00", "client-01"])
    return [lane.prepared for lane in lanes], sent


def train(rounds: Rounds, progress: Progress) -> Any:
    outcome = rounds.train(progress)
    assert outcome.aggregate.mean is not None and not outcome.failures
    return outcome.aggregate.mean.tobytes()


def finish(rounds: Rounds, progress: Progress) -> Any:
    return rounds.finish(progress, rounds.train(progress)).params.tobytes()


def evaluate(rounds: Rounds, progress: Progress) -> Any:
    return dict(rounds.evaluate(progress.state, progress.round, ["dev"], final=False)["dev"].metrics)


def personal(rounds: Rounds, progress: Progress) -> Any:
    rounds.prepare(["client-00"])

    def work() -> Any:
        reference = rounds.put(progress.state, 0).clients
        clients = [("client-00", None)]
        return evaluate_all(rounds.pool, clients, 0, reference, ["dev"], None, False, lambda done, of: None)

    (scored,) = rounds.again(work)
    return scored.client


@pytest.mark.long
@pytest.mark.parametrize("work", [prepare, train, finish, evaluate, personal])
def test_lost_inputs_are_put_again(
    played: tuple[Rounds, list[str]], lost: Any, work: Callable[[Rounds, Progress], Any]
) -> None:
    rounds, said = played
    assert rounds._initial is not None
    progress = Progress(rounds._initial)
    expected = work(rounds, progress)
    rounds.put(progress.state, progress.round)
    assert rounds._put is not None
    said.clear()
    posted = replace(rounds._put[2], server=lost, clients=lost)
    rounds._put, rounds.first = (*rounds._put[:2], posted), lost
    assert work(rounds, progress) == expected
    assert said == ["an actor or node died with data that a job needs; redoing the work"]
    assert rounds.pool.crew.replaced == 0
