"""The driver actor: it holds the run folder, runs the rounds and reports events. It needs no GPU."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import ray
import torch
from ray.util.placement_group import PlacementGroup

from fedray.core import malloc
from fedray.core.types import RunError
from fedray.core.words import counted
from fedray.engine.actors.actor import Answer, ClientActor
from fedray.engine.actors.crew import Start
from fedray.engine.actors.hangs import Hangs
from fedray.engine.actors.pool import Pool
from fedray.engine.actors.stops import Stopped, Wish
from fedray.engine.cluster.mixed import Nodes, Setup
from fedray.engine.cluster.nodes import alive, on_this_node
from fedray.engine.cluster.reservation import NAMESPACE, Reserved, bundle, grown, name_of, reserve
from fedray.engine.cluster.resources import DRIVER_CPUS, Share
from fedray.engine.driver.run_loop import RunLoop
from fedray.engine.jobs.deaths import Death
from fedray.engine.jobs.holding import scratch
from fedray.engine.jobs.job import Init
from fedray.engine.jobs.work import Program, asset_bytes
from fedray.engine.options.chosen import chosen
from fedray.engine.round.plan import Plan
from fedray.engine.round.rounds import Rounds
from fedray.engine.telemetry.events import Event, Events
from fedray.engine.telemetry.trackers import Card, Nothing, Tracker
from fedray.engine.telemetry.tracking import Tracking
from fedray.runs.folder import RunFolder
from fedray.runs.standing import ATTACH

# Bundles of a trial's placement group: the driver's and the first client actor's. The trial's process has bundle 0.
DRIVER_BUNDLE, CLIENT_BUNDLE = 1, 2
LOOKS, LOOK_SECONDS = 5, 1.0  # a run looks so often for room on a node that has joined, with these pauses
LINGER_SECONDS = 10.0  # a detached driver stays this long after its run, for processes that watch it


@dataclass(frozen=True)
class Assignment:
    """The work of a driver."""

    name: str
    program: Program
    assets: Mapping[str, Any]  # the algorithm's, taken before the algorithm was copied
    plan: Plan
    share: Share
    folder: Path | str  # of the run: a path, or the URI of an object store
    texts: Mapping[str, str] = field(default_factory=dict)  # files that describe the run, written under the lock
    group: PlacementGroup | None = None  # of a sweep's trial; None: the run reserves its resources itself
    tracker: Tracker = field(default_factory=Nothing)
    card: Card | None = None  # for the tracker; None: the run's name alone
    new: bool = False  # whether this is a new run, whose folder must hold no other files


class Driver:
    """A Ray actor with several threads: one runs the rounds, the others answer `events`, `note`, `idle` and so on."""

    def __init__(self, assignment: Assignment, detached: bool) -> None:
        self.assignment, self.detached = assignment, detached
        self.folder, self.log = RunFolder(assignment.folder), Events()
        self._wish = Wish.NOT_YET  # when the user wants the run to end
        self._pool: Pool | None = None
        self._reserved = Reserved(assignment.share)
        self._pinned: frozenset[int] | None = None
        self._known, self._looks = set[str](), Counter[str]()  # nodes when the actors started, and looks at newer ones
        self._next_look = 0.0
        torch.set_num_threads(1)  # as on client actors: more threads give other bits
        malloc.tune(mapped=4 << 20, kept=32 << 20)  # glibc would keep the models of old rounds

    def events(self, after: int, timeout: float) -> list[Event]:
        return self.log.after(after, timeout)

    def note(self, kind: str, data: dict[str, Any]) -> None:
        self.log.add(kind, data)

    def stop(self, now: bool) -> None:
        """End after the current round with a checkpoint, or at once (`now`, or if an actor hangs)."""
        self._wish = Wish.NOW if now else Wish.AFTER_ROUND

    def idle(self, node: str, lost: Mapping[int, Death]) -> dict[int, Any]:
        """The idle client actors by number, those of `node` first. `lost`: those that did not answer, and why."""
        return self._pool.lend(node, lost) if self._pool is not None else {}

    def heard(self, node: str, pid: int) -> None:
        """A client actor is at long work."""
        if self._pool is not None:
            self._pool.heard(node, pid)

    def pin(self, rounds: list[int]) -> None:
        """Keep the checkpoints of these rounds, and all newer ones, until the next call."""
        self._pinned = frozenset(rounds)

    def run(self) -> dict[str, Any]:
        """Run all rounds; returns the content of results.json. The last event tells how the run ended."""
        try:
            with self.folder.locked():
                if self.assignment.new:  # checked before, but another process may have filled it since
                    self.folder.check_free()
                results = self._run()
            self.note("end", {"results": results})
            return results
        except Exception as error:
            self.note("end", {"error": f"{error}"})
            raise
        finally:
            if self.detached:  # no other process ends this one, or gives back what it holds
                self._reserved.release()
                threading.Timer(LINGER_SECONDS, os._exit, (0,)).start()

    def prepare(self, clients: Sequence[str]) -> None:
        """Make theta_0 and the first states of these clients, which stay in the cache for other runs."""
        algorithm = self.assignment.program.algorithm
        with self._actors() as (pool, rounds):
            rounds.start(rounds.again(lambda: pool.run({0: Init()}))[0][0])
            if algorithm.overrides("client_prepare"):
                lanes, _ = rounds.prepare(clients)
                rounds.check([failure for lane in lanes for failure in lane.failures], len(clients))

    def _run(self) -> dict[str, Any]:
        mine = self.assignment
        tracking = Tracking(mine.tracker, mine.card or Card(mine.name), self.folder, self._warn)
        wish, pinned = lambda: self._wish, lambda: self._pinned
        loop = RunLoop(mine.name, mine.program, mine.plan, self.folder, self.note, wish, tracking, pinned)
        try:
            self._open()
            tracking.knock()
            with self._actors() as (pool, rounds):
                for option in rounds.options:
                    if words := option.words():
                        self._say(words)
                results = loop.run(pool, rounds)
            tracking.close("stopped" if "stopped" in results else "finished", results)
            return results
        except Stopped:
            tracking.close("stopped")
            return loop.stopped()
        except Exception:  # any error: its traceback goes to the run folder
            self._keep("error.txt", traceback.format_exc())
            tracking.close("failed")
            raise
        finally:
            self._remove(ATTACH)

    @contextmanager
    def _actors(self) -> Iterator[tuple[Pool, Rounds]]:
        """The client actors, and their rounds. Actors and their local files are removed at the end."""
        run = hashlib.blake2b(self.folder.place.encode(), digest_size=8).hexdigest()
        pool = None
        self._reserved = self._reserve()
        try:
            pool = self._pool = self._start_pool(run)
            program, plan = self.assignment.program, self.assignment.plan
            rounds = Rounds(program, plan, pool, scratch(run), asset_bytes(self.assignment.assets), self.note)
            rounds.options = chosen(rounds)
            yield pool, rounds
        finally:
            if pool is not None:
                self._pool = None
                pool.close()
            shutil.rmtree(scratch(run), ignore_errors=True)

    def _open(self) -> None:
        """Write the files that describe the run, and the driver's address."""
        for name, text in self.assignment.texts.items():
            self.folder.write_text(name, text)
        self.folder.remove("error.txt")
        me = {
            "address": ray.get_runtime_context().gcs_address,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": time.time(),
        }
        self.folder.write_json(ATTACH, me)

    def _say(self, text: str) -> None:
        self.note("phase", {"text": text})

    def _warn(self, text: str) -> None:
        self.note("warning", {"text": text})

    def _keep(self, name: str, text: str) -> None:
        self._at_the_end(f"{name} could not be written", lambda: self.folder.write_text(name, text))

    def _remove(self, name: str) -> None:
        self._at_the_end(f"{name} could not be removed", lambda: self.folder.remove(name))

    def _at_the_end(self, failed: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (OSError, RunError) as error:  # most likely the full disk or lost storage that ended the run
            self._warn(f"{failed}: {error}")

    def _client_actor(self, slot: int, *arguments: Any) -> Any:
        """Start a client actor. `arguments`: those of `ClientActor` except the last, which is this driver."""
        share, where = self._reserved.share, self._reserved.bundle(slot)
        booked = {"num_cpus": share.cpus, "num_gpus": share.gpus, "max_restarts": 0, "scheduling_strategy": where}
        return ray.remote(**booked)(ClientActor).remote(*arguments, ray.get_runtime_context().current_actor)

    def _reserve(self) -> Reserved:
        """The bundles of the client actors: those of the trial, or a group of the run's own, once there is room."""
        mine = self.assignment
        if mine.group is not None:
            return Reserved(mine.share, mine.group, CLIENT_BUNDLE)
        return reserve(self.folder.place, mine.share, mine.plan.engine, self._check, self._say)

    def _check(self) -> None:
        if self._wish is not Wish.NOT_YET:  # no round has begun that could end first
            raise Stopped

    def _compared(self) -> Callable[[Answer], None]:
        """A function that compares the nodes of the client actors, and records them in run.json."""
        run = self.folder.read_json("run.json") if self.folder.exists("run.json") else {}  # none while a sweep prepares
        allowed, seen = self.assignment.plan.engine.mixed_nodes, set[str]()
        nodes = functools.cache(lambda: Nodes(run, Setup.here(gpu=False), allowed, self._warn))

        def greet(answer: Answer) -> None:
            if answer.setup is None:
                seen.add("")  # a node that was the only one when its actors started
                return
            if answer.node not in seen and not self.folder.exists(f"probe/{answer.node}"):
                raise RunError(
                    f"node {answer.node} does not see the run folder {self.folder.place}: with several nodes choose "
                    "--out on a shared folder or an object store"
                )
            seen.add(answer.node)
            if nodes().add(answer.setup, "" in seen) and run:
                self.folder.write_json("run.json", run | nodes().record())

        return greet

    def _room(self, slot: int, size: int) -> int:
        """Reserve room for further actors on nodes that have joined; returns for how many."""
        most, now = self._reserved.share.most, time.monotonic()
        if most is None or now < self._next_look:
            return 0
        self._next_look, there = now + LOOK_SECONDS, alive()
        new = {node for node in there - self._known if self._looks[node] < LOOKS}
        self._looks.update(new)  # Ray may be slow to say what a new node has
        if not new:
            return 0
        self._reserved, count = grown(self.folder.place, self._reserved, slot, most - size)
        if count:
            self._known = there
            self.folder.write_text("probe/driver", self.folder.place)
            self._say(f"{counted(count, 'more client actor')} on nodes that have joined")
        return count

    def _start_pool(self, run: str) -> Pool:
        share, engine = self._reserved.share, self.assignment.plan.engine
        program = ray.put(self.assignment.program)
        assets = ray.put(dict(self.assignment.assets))
        hold, dedicated = engine.hold_gb * 1e9, engine.placement == "dedicated"
        self._known, folder = alive(), None
        if len(self._known) > 1:
            folder = str(self.assignment.folder)
            self.folder.write_text("probe/driver", self.folder.place)

        def make(slot: int) -> Any:
            return self._client_actor(slot, program, assets, share.gpus, hold, dedicated, run)

        self._say(f"starting {counted(share.actors, 'client actor')}")
        remedy = f"; `fedray stop {quote(self.folder.place)}` ends the run"
        hangs = Hangs(engine.hang_warning_s, self._warn, remedy, engine.deadline)
        start = Start(self._compared(), self._reserved.taken, self._check, self._room, str(self.assignment.folder))
        return Pool(make, share.actors, engine.replacements, lambda: self._wish, folder, self._warn, hangs, start)


def start(assignment: Assignment, detached: bool = False) -> Any:
    """Start a driver actor on this node or in its bundle. `detached`: the driver outlives this process.

    On this node it books no core: it must run to wait for room, and to say so.
    """
    here = bundle(assignment.group, DRIVER_BUNDLE) or on_this_node()
    life = {"lifetime": "detached"} if detached else {}
    place = RunFolder(assignment.folder).place
    cpus = 0.0 if assignment.group is None else DRIVER_CPUS
    remote = ray.remote(num_cpus=cpus, max_concurrency=16, max_restarts=0, scheduling_strategy=here)(Driver)
    try:
        return remote.options(name=name_of(place), namespace=NAMESPACE, **life).remote(assignment, detached)
    except ValueError as error:  # from Ray: the name is taken
        raise ValueError(f"{place}: another run is using this folder: `fedray watch {place}` shows it") from error
