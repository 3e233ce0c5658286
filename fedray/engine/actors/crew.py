"""The client actors of a pool: they start, answer, die, and are replaced, or become fewer when memory is short."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray

from fedray.core.types import RunError
from fedray.core.words import counted
from fedray.engine.actors.actor import Answer
from fedray.engine.actors.ray_deaths import DEATHS, death_of, eviction, uncoloured
from fedray.engine.cluster.nodes import is_alive, kill_on, kills_in, read_on
from fedray.engine.jobs.deaths import Cause, Death
from fedray.engine.jobs.job import Reference

# For the next actor to start. It needs seconds of CPU to import torch: minutes on a machine with more work than cores.
READY_SECONDS = 300.0
LOOK_SECONDS = 1.0  # between two looks at actors that start
CLEAR_SECONDS = 2.0  # for idle actors to clear their disk
SHORT_OF_MEMORY = 2  # from this many deaths for memory in a run on, each leaves one actor fewer


@dataclass(frozen=True)
class Actor:
    """A client actor."""

    number: int  # counts up; a replacement gets a new number
    slot: int  # place in the pool, which a replacement takes over
    handle: Any
    node: str = ""
    pid: int = 0
    oom_kills: int = 0  # the count of its node's kernel when it started
    joined: bool = False  # started in the course of the run, and not in place of another


@dataclass(frozen=True)
class Start:
    """What is asked while actors start."""

    greet: Callable[[Answer], None] = lambda answer: None  # sees an actor that has started, and refuses it by an error
    taken: Callable[[], bool] = lambda: False  # whether others hold the room of actors that have not started
    check: Callable[[], None] = lambda: None  # raises an error if the user wants the run to end
    # Reserves room for further actors on nodes that have joined, from a slot on; tells for how many.
    room: Callable[[int, int], int] = lambda slot, size: 0
    folder: str | None = None  # the run folder, where actors on nodes that have joined write probe files


class Crew:
    """The actors by number: those that are working or idle, and those that are starting.

    `make(slot)` starts an actor. `replacements`: how many dead actors may be replaced. `folder`: the run folder, where
    actors on several nodes write probe files (None: one node). `warn` receives warnings.
    """

    def __init__(
        self,
        make: Callable[[int], Any],
        size: int,
        replacements: int,
        folder: str | None,
        warn: Callable[[str], None],
        start: Start | None = None,
    ) -> None:
        self._make, self._left, self._folder, self._warn = make, replacements, folder, warn
        self._begin = start or Start()
        self.size, self.replaced = size, 0
        self.killed = 0  # actors that hung
        self.actors: dict[int, Actor] = {}  # by number: those that have answered and live
        self.idle: list[int] = []
        self.starting: dict[Reference, tuple[Actor, float]] = {}  # pending answer -> actor, since when
        self._numbers = self._short = 0
        self.slots = size
        for slot in range(size):
            self._start(slot)
        self._await_all()

    def grow(self) -> int:
        """Start actors on nodes that have joined; returns how many. They work once they have answered."""
        count = self._begin.room(self.slots, self.size)
        if count:
            self._folder = self._begin.folder
        for slot in range(self.slots, self.slots + count):
            self._start(slot, joined=True)
        self.slots += count
        self.size += count
        return count

    def refuse(self, actor: Actor, error: Exception) -> None:
        """Do without an actor on a node that has joined, which cannot be used."""
        ray.kill(actor.handle)
        self.size -= 1
        self._warn(f"a node that has joined cannot be used: {error}")

    def _start(self, slot: int, joined: bool = False) -> None:
        actor = Actor(self._numbers, slot, self._make(slot), joined=joined)
        self._numbers += 1
        self.starting[self.ping(actor, self._folder)] = (actor, time.monotonic())

    def ping(self, actor: Actor, folder: str | None = None) -> Reference:
        """A reference to an actor's answer, which comes once the actor has no other work."""
        return actor.handle.ping.remote(folder)

    def _await_all(self) -> None:
        """Wait until every actor has answered. An actor that runs out of memory is replaced or left out.

        RunError: an actor cannot start, and its jobs would wait for ever.
        """
        since = time.monotonic()
        while self.starting:
            ready, waiting = ray.wait(list(self.starting), num_returns=len(self.starting), timeout=LOOK_SECONDS)
            self._begin.check()
            if ready:
                since = time.monotonic()
            elif time.monotonic() - since > READY_SECONDS:
                if not self._begin.taken():
                    raise RunError(
                        f"{len(waiting)} of {self.size} client actors did not start: their cores and GPUs are "
                        f"reserved, but no process has answered for {READY_SECONDS:.0f} s (Ray's logs may say why)"
                    )
                since = self._say_taken()
            for reference in ready:
                actor, _ = self.starting[reference]
                try:
                    self.admit(reference)
                except DEATHS as error:
                    if eviction(error) is None:
                        raise RunError(f"a client actor died while it started: {uncoloured(error)}") from error
                    self.bury(actor, death_of(error))

    def admit(self, reference: Reference) -> None:
        """Add an actor that has answered its first ping. Raises the error if the ping failed."""
        actor, _ = self.starting.pop(reference)
        answer = Answer(*ray.get(reference))
        self._begin.greet(answer)
        self.actors[actor.number] = replace(actor, node=answer.node, pid=answer.pid, oom_kills=answer.oom_kills)
        self.idle.append(actor.number)

    def late(self) -> bool:
        """Whether no actor is alive, and those that are starting take too long, though nobody else has their room."""
        if self.actors or any(time.monotonic() - since <= READY_SECONDS for _, since in self.starting.values()):
            return False
        if not self._begin.taken():
            return True
        since = self._say_taken()
        self.starting = {reference: (actor, since) for reference, (actor, _) in self.starting.items()}
        return False

    def _say_taken(self) -> float:
        """Warn that others hold the room of actors that were lost with a node; returns the time."""
        self._warn(
            f"{len(self.starting)} of {self.size} client actors wait for room, which was lost with a node: others hold "
            "what is left"
        )
        return time.monotonic()

    def bury(self, actor: Actor, death: Death) -> Death:
        """Replace a dead actor, or run with one fewer if memory is short.

        Returns the death with the cause that the actor's node reports. RunError: no replacement is left.
        """
        self.actors.pop(actor.number, None)
        death = self._looked_up(actor, death)
        ray.kill(actor.handle)  # it may still be running
        if death.cause is Cause.HANG:
            self.killed += 1
            kill_on(actor.node, actor.pid)  # Ray asks the process to end, and a suspended one does not respond
        self._short += death.cause is Cause.MEMORY
        if death.cause is Cause.MEMORY and self._short >= SHORT_OF_MEMORY and self.size > 1 and not death.alone:
            self.size -= 1
            self._warn(
                f"a client actor died and is not replaced: {death.why}. Memory ran out {self._short} times, so the run "
                f"continues with {counted(self.size, 'actor')} and the same bits: set "
                f"engine.actors={self.size} for such runs"
            )
            return death
        if actor.node and not is_alive(actor.node):  # spot machines come and go: this is no crash
            self._warn(f"a node has left with a client actor, which starts again once there is room: {death.why}")
            self._start(actor.slot)
            return death
        if self._left == 0:
            raise RunError(
                f"a client actor died, and engine.replacements allows no further one ({self.replaced} were replaced): "
                f"{death.why}; `fedray resume` continues from the last checkpoint"
            )
        self._left -= 1
        self.replaced += 1
        self._warn(f"a client actor died and is being replaced ({self._left} more allowed): {death.why}")
        self._start(actor.slot)
        return death

    def _looked_up(self, actor: Actor, death: Death) -> Death:
        """The death, with cause MEMORY if its node's kernel has killed a process for memory since the actor started."""
        if death.cause is not Cause.CRASH or not actor.node:
            return death
        if kills_in(read_on(actor.node, Path("/proc/vmstat")) or "") <= actor.oom_kills:
            return death
        why = "the kernel of its node killed a process for memory: lower engine.actors to use less"
        return replace(death, cause=Cause.MEMORY, why=why)

    def close(self, hung: set[int]) -> None:
        """Have every actor clear its disk and end; waits for those that are idle. Actors that hang are killed."""
        cleared = []
        for actor in self.actors.values():
            if actor.number in hung:
                ray.kill(actor.handle)
                kill_on(actor.node, actor.pid)
                continue
            done = actor.handle.clear.remote()
            actor.handle.__ray_terminate__.remote()  # after the work that was sent earlier
            cleared += [done] if actor.number in self.idle else []
        if cleared:
            ray.wait(cleared, num_returns=len(cleared), timeout=CLEAR_SECONDS)
