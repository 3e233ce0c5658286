"""Why actors end, and what the pool does then: hangs, memory, GPUs, network hiccups, lost objects."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError

from fedray.core.types import RunError
from fedray.engine.actors import pool as pools
from fedray.engine.actors.hangs import Hangs
from fedray.engine.actors.pool import Pool
from fedray.engine.actors.stops import Lost
from fedray.engine.cluster import nodes
from fedray.engine.driver import session
from fedray.engine.jobs.deaths import Cause, Death, Doomed
from fedray.engine.jobs.job import Job, Workplace
from fedray.engine.settings import DeadlineSettings


class Worker:
    def ping(self, folder: str | None) -> tuple[str, str, int, int]:
        assert issubclass(Errand, Job)  # imported here, so that no job waits for it
        return ray.get_runtime_context().get_node_id(), "cpu", os.getpid(), nodes.oom_kills()

    def run(self, job: Job[Any], *inputs: Any) -> Any:
        return job.run(None, *inputs)  # type: ignore[arg-type]

    def clear(self) -> None:
        pass


@dataclass(frozen=True)
class Errand(Job[int]):
    """A job that returns its number. It counts its attempts in `folder`; the first `bad` of them go wrong."""

    number: int
    folder: str
    trouble: str = ""
    bad: int = 1
    solitary: bool = False

    @property
    def alone(self) -> bool:
        return self.solitary

    def run(self, workplace: Workplace, *inputs: Any) -> int:
        tries = Path(self.folder) / f"{self.number}"
        with tries.open("a") as file:
            file.write("x")
        if self.trouble and len(tries.read_text()) <= self.bad:
            if self.trouble == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif self.trouble == "wait":  # a file system that does not answer
                os.mkfifo(tries.with_suffix(".pipe"))
                tries.with_suffix(".pipe").read_text()
            elif self.trouble == "memory":
                raise Doomed(Death(Cause.MEMORY, "it ran out of memory"))
            elif self.trouble == "gpu":
                raise Doomed(Death(Cause.GPU, "its GPU context is broken"))
        with (Path(self.folder) / f"running-{os.getpid()}").open("w"):
            if self.solitary:
                assert len(list(Path(self.folder).glob("running-*"))) == 1, "it was not alone"
            time.sleep(0.2)
        (Path(self.folder) / f"running-{os.getpid()}").unlink()
        return self.number

    def after_death(self, node: str, death: Death, warn: Callable[[str], None]) -> Errand:
        warn(f"errand {self.number}: {death.cause.name}{' alone' * death.alone}")
        return self


@pytest.fixture(scope="module", autouse=True)
def shipped(cluster: None) -> None:
    session.ship(sys.modules[__name__])  # the actors cannot import it


@contextmanager
def pool(size: int, said: list[str], **options: Any) -> Iterator[Pool]:
    def make(slot: int) -> Any:
        return ray.remote(num_cpus=0.1, max_restarts=0)(Worker).remote()

    made = Pool(make, size, 3, warn=said.append, **options)
    try:
        yield made
    finally:
        for actor in made.crew.actors.values():
            ray.kill(actor.handle)


def hasty(said: list[str], floor: float = 2.0) -> Hangs:
    return Hangs(1.0, said.append, deadline=DeadlineSettings(factor=3.0, floor_s=floor))


@pytest.mark.long
@pytest.mark.parametrize("trouble", ["stop", "wait"])
def test_an_actor_that_hangs_beyond_the_deadline_is_killed_and_its_job_done_again(tmp_path: Path, trouble: str) -> None:
    said: list[str] = []
    with pool(2, said, hangs=hasty(said)) as mine:
        assert mine.run({0: Errand(0, str(tmp_path))}) == {0: 0}  # sets the usual time
        before = {actor.number: actor.pid for actor in mine.crew.actors.values()}
        jobs = {n: Errand(n, str(tmp_path), trouble * (n == 1)) for n in range(1, 4)}
        assert mine.run(jobs) == {1: 1, 2: 2, 3: 3}
        assert mine.crew.killed == mine.crew.replaced == 1 and not mine.hangs.marked
        (gone,) = set(before) - {number for number in before if mine.lives(number)}
        until = time.monotonic() + 20
        while Path(f"/proc/{before[gone]}").exists():
            assert time.monotonic() < until, "it was not killed"
            time.sleep(0.1)
    assert said[0].startswith("a client actor seems to hang at `Errand`: process ")
    assert "is being replaced (2 more allowed): it was silent for " in said[1] and "beyond engine.deadline" in said[1]
    assert said[2:] == ["errand 1: HANG"]


@pytest.mark.nightly
def test_a_pause_of_the_driver_is_no_silence_of_an_actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock has gone on, as after Ctrl-Z, but no actor hangs."""
    said: list[str] = []
    now, ahead = time.perf_counter, [0.0]
    monkeypatch.setattr(pools, "time", SimpleNamespace(perf_counter=lambda: now() + ahead[0], sleep=time.sleep))
    with pool(1, said, hangs=hasty(said, floor=60.0)) as mine:
        mine.hangs.done(0, "", "Errand", 0.0, 0.1)

        def wait(references: list[Any], **options: Any) -> Any:
            ahead[0] += 1000.0 * (not ahead[0])
            return ray.wait(references, **options)

        monkeypatch.setattr(pools, "ray", SimpleNamespace(get=ray.get, wait=wait, nodes=ray.nodes))
        assert mine.run({0: Errand(0, str(tmp_path))}) == {0: 0}
    assert mine.crew.killed == 0 and ahead == [1000.0]


@pytest.mark.nightly
def test_where_memory_runs_out_there_are_fewer_actors(tmp_path: Path) -> None:
    """One death counts as an accident. After the second there is one actor fewer, but the last one stays."""
    said: list[str] = []
    with pool(2, said) as mine:
        jobs = {n: Errand(n, str(tmp_path), "memory" * (n == 1), bad=2) for n in range(4)}
        assert mine.run(jobs) == {n: n for n in range(4)} and mine.size == len(mine.crew.actors) == 1
    deaths = [words for words in said if not words.startswith("errand")]
    assert deaths == [
        "a client actor died and is being replaced (2 more allowed): it ran out of memory",
        "a client actor died and is not replaced: it ran out of memory. Memory ran out 2 times, so the run continues "
        "with 1 actor and the same bits: set engine.actors=1 for such runs",
    ]
    assert [words for words in said if words.startswith("errand")] == ["errand 1: MEMORY"] * 2


@pytest.mark.long
def test_the_kernel_kills_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with pool(1, said) as mine:
        monkeypatch.setattr("fedray.engine.actors.crew.read_on", lambda node, path: f"oom_kill {10**9}")
        (actor,) = mine.crew.actors.values()
        os.kill(actor.pid, signal.SIGKILL)
        assert mine.run({0: Errand(0, str(tmp_path))}) == {0: 0}
    assert "the kernel of its node killed a process for memory" in said[0] and said[1] == "errand 0: MEMORY alone"


@pytest.mark.nightly
def test_a_job_that_is_to_run_alone_does(tmp_path: Path) -> None:
    with pool(3, []) as mine:
        jobs = {n: Errand(n, str(tmp_path), solitary=n in (0, 3), cost=float(n)) for n in range(6)}
        assert mine.run(jobs) == {n: n for n in range(6)}


@pytest.mark.nightly
def test_a_job_that_never_finds_memory_ends_the_run(tmp_path: Path) -> None:
    with (
        pool(1, []) as mine,
        pytest.raises(RunError, match=r"`Errand` ended its actor 3 times, at last: it ran out of"),
    ):
        mine.run({0: Errand(0, str(tmp_path), "memory", bad=9)})


@pytest.mark.long
def test_an_actor_with_a_broken_gpu_context_ends(tmp_path: Path) -> None:
    said: list[str] = []
    with pool(1, said) as mine:
        assert mine.run({0: Errand(0, str(tmp_path), "gpu")}) == {0: 0} and not mine.lives(0)
    assert said[1] == "errand 0: GPU alone" and "its GPU context is broken" in said[0]


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, *calls: int) -> None:
    """Make the pool's fetches with these numbers, counted from 0, raise `error`."""
    count = iter(range(1000))

    def get(reference: Any) -> Any:
        if next(count) in calls:
            raise error
        return ray.get(reference)

    monkeypatch.setattr(pools, "ray", SimpleNamespace(get=get, wait=ray.wait, nodes=ray.nodes))


@pytest.mark.nightly
def test_a_hiccup_of_the_network_is_no_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetching the result fails (0), and so does fetching the answer to the first ping (1); the actor stays."""
    said: list[str] = []
    with pool(1, said) as mine:
        failing(monkeypatch, ActorUnavailableError("the connection broke", b"0" * 16), 0, 1)
        assert mine.run({0: Errand(0, str(tmp_path))}) == {0: 0}
        assert mine.lives(0) and mine.crew.replaced == 0 and (tmp_path / "0").read_text() == "xx"
    (words,) = said
    assert words.startswith("a client actor cannot be reached; waiting for it: ")


@pytest.mark.nightly
def test_an_actor_that_cannot_be_reached_for_long_is_replaced_and_no_client_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pools, "HICCUP_SECONDS", 0.5)
    with pool(1, said) as mine:
        failing(monkeypatch, ActorUnavailableError("the connection broke", b"0" * 16), *range(20))
        with pytest.raises(RunError, match=r"no further one \(3 were replaced\): it could not be reached for 0 s"):
            mine.run({0: Errand(0, str(tmp_path))})
    assert not any("errand" in words for words in said)


@pytest.mark.long
def test_a_result_that_is_lost_is_made_again_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ObjectLostError("00" * 28, None, "")
    with pool(1, []) as mine:
        failing(monkeypatch, lost, 0)
        assert mine.run({0: Errand(0, str(tmp_path))}) == {0: 0}
        failing(monkeypatch, lost, 0, 1)
        with pytest.raises(Lost, match="`fedray resume` continues from the last checkpoint"):
            mine.run({0: Errand(0, str(tmp_path))})
