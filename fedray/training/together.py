"""Clients of a lane trained side by side: their models take a step as one batch of models.

An algorithm's code still trains one client. Each client trains in its own thread. One thread runs at a time, until its
client needs its model's outputs or their gradients. When all threads wait, calls that match are made as one, by
`torch.func.vmap` over the stacked parameters, and the threads continue. So a client takes the same steps as when it
trains alone, up to floating-point rounding and dropout, whose masks are drawn for all models of a call at once.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from fedray.core.exhaustion import exhausted
from fedray.core.parameters import FlatModel
from fedray.core.seeds import seed_all
from fedray.core.types import Client, Update
from fedray.training.loans import Loans
from fedray.training.stack import Answer, Call, Gradients, Row, Stack
from fedray.training.task import Task

_THREAD = threading.local()


def flat_model(task: Task, device: str, frozen: bool, holder: object) -> FlatModel:
    """A model of a client in training, which is `holder`'s alone.

    It is a row of its group's stack, or a model of this process if the client trains alone. `frozen`: running
    statistics of batch norm stay as they are.
    """
    member: Member | None = getattr(_THREAD, "member", None)
    return task.lend(device, holder) if member is None else member.row(task, device, frozen, holder)


def train(clients: Iterator[Client], size: int, update: Callable[[Client], Update]) -> Iterator[Update | Exception]:
    """Train clients, up to `size` side by side. Yields each one's update or error, in the clients' order.

    A client is taken from `clients` when a place is free; `clients` seeds the global generators for it.
    """
    group = Group(size)
    try:
        while True:
            while group.has_room() and (client := next(clients, None)) is not None:
                group.start(client, update)
            if not group.members:
                return
            group.step()
            yield from group.done()
    finally:
        group.abandon()


class Abandoned(BaseException):
    """Ends the thread of a client whose lane is abandoned."""


class Member(threading.Thread):
    """A thread that trains one client, with its own random number generators."""

    def __init__(self, group: Group, index: int, work: Callable[[], Update]) -> None:
        super().__init__(daemon=True)
        self.group, self.index, self.work = group, index, work
        self.result: Update | BaseException | None = None
        self.call: Call | Gradients | None = None  # the call that it waits for
        self._generators = generators()
        self._loans = Loans()  # of the numbers of its models
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)

    def run(self) -> None:
        """Train the client once `resume` is called."""
        _THREAD.member = self
        self._go.acquire()
        try:
            self.result = self.work()
        except BaseException as error:  # noqa: BLE001 - `Group.done` yields or raises it
            self.result = error
        finally:
            self._back.release()

    def resume(self) -> None:
        """Let the client train until it waits for a call or finishes. Runs in the group's thread."""
        restore(self._generators)
        self.call = None
        self._go.release()
        self._back.acquire()
        self._generators = generators()

    def wait(self, call: Call | Gradients) -> None:
        """Wait until the group has made a call. Runs in the client's thread."""
        self.call = call
        self._back.release()
        self._go.acquire()
        if call.error is not None:
            raise call.error

    def row(self, task: Task, device: str, frozen: bool, holder: object) -> Row:
        """A model of the client for a task, which is `holder`'s alone."""
        number = self._loans.lend((id(task), device), holder)
        return Row(self.group.stack(task, device, number), self.index, frozen, self.wait)


class Group:
    """Up to `size` clients in training; with finished ones whose updates are not taken yet, up to twice as many."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.members: deque[Member] = deque()  # in the clients' order
        self._seed: int | None = None  # of the group's own generators, which draw the dropout masks of its calls
        self._generators: tuple[Any, ...] | None = None
        self._stacks: dict[tuple[int, str, int], Stack] = {}

    def has_room(self) -> bool:
        """Whether one more client can start."""
        return len(self.members) < 2 * self.size and len(self._training()) < self.size

    def start(self, client: Client, update: Callable[[Client], Update]) -> None:
        """Begin a client's training."""
        taken = {member.index for member in self._training()}
        index = next(index for index in range(self.size) if index not in taken)
        self._seed = client.seed if self._seed is None else self._seed
        member = Member(self, index, lambda: update(client))
        self.members.append(member)
        member.start()
        member.resume()

    def step(self) -> None:
        """Make the calls that the clients wait for, and let them continue."""
        waiting = self._training()
        calls: dict[Any, list[Call]] = {}
        gradients: dict[Answer, list[Gradients]] = {}
        for member in waiting:
            if isinstance(member.call, Call):
                calls.setdefault(member.call.key, []).append(member.call)
            elif member.call is not None:
                gradients.setdefault(member.call.answer, []).append(member.call)
        self._draw()
        for alike in calls.values():
            forward(alike)
        for answer, of_answer in gradients.items():
            answer.backward(of_answer)
        self._generators = generators()
        for member in waiting:
            member.resume()

    def _draw(self) -> None:
        """Continue the group's generators from its last step: a member's would draw the same masks in every step."""
        if self._generators is None:
            assert self._seed is not None
            seed_all("together", self._seed)
        else:
            restore(self._generators)

    def done(self) -> Iterator[Update | Exception]:
        """Yield the results of the clients before the first one that is still training."""
        while self.members and self.members[0].result is not None:
            result = self.members.popleft().result
            if not isinstance(result, Update | Exception):
                assert result is not None
                raise result
            yield result

    def stack(self, task: Task, device: str, number: int = 0) -> Stack:
        """The models of all clients for a task: each client's first, second, ... model."""
        key = (id(task), device, number)
        if key not in self._stacks:
            self._stacks[key] = Stack(task, device, self.size, number)
        return self._stacks[key]

    def abandon(self) -> None:
        """End the threads of clients in training."""
        for member in self._training():
            assert member.call is not None
            member.call.error = Abandoned()
            member.resume()

    def _training(self) -> list[Member]:
        return [member for member in self.members if member.result is None]


def forward(calls: list[Call]) -> None:
    """Make calls as one. If that fails, make each alone, so that an error hits only its client.

    Running out of memory is an error of the lane: whether the calls fit into memory together must not decide the bits
    of an update.
    """
    try:
        calls[0].stack.forward(calls)
    except Exception as error:
        if exhausted(error):
            raise
        if len(calls) == 1:
            calls[0].error = error
        else:
            for call in calls:
                forward([call])


def generators() -> tuple[Any, ...]:
    """The states of the global generators of torch, numpy and Python."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    return torch.get_rng_state(), cuda, np.random.get_state(), random.getstate()


def restore(states: tuple[Any, ...]) -> None:
    """Set the global generators to these states."""
    cpu, cuda, numpy, python = states
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)
    np.random.set_state(numpy)
    random.setstate(python)
