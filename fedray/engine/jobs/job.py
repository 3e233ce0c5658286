"""Jobs of client actors: what a job is, what it finds on its actor, and the jobs that belong to no lane."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar, final

from fedray.core.types import Broadcast, Evaluation, Layer, Received, RunError, Server, ServerState, Update, Vector
from fedray.engine.jobs import work
from fedray.engine.jobs.deaths import Death
from fedray.engine.jobs.holding import Holder
from fedray.engine.jobs.soundness import check_update, sizes
from fedray.engine.jobs.work import Program

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Reference = Any  # ray.ObjectRef: an object in Ray's object store


@dataclass
class Workplace:
    """What a job finds on the actor that runs it."""

    program: Program
    layers: tuple[Layer, ...]  # of the algorithm
    assets: Mapping[str, Any]  # of the algorithm
    holder: Holder  # of updates that wait for the whole cohort
    progress: Callable[[int, int, str], None]  # (done, of, what) of long work
    device: str = "cpu"
    spread: Callable[[Vector, Sequence[Any]], list[Any]] | None = None  # `Server.spread` before the first round
    raises: bool = False  # whether a client's error ends the job; else it is recorded, and the lane continues

    def receive(self, broadcast: Broadcast, round: int) -> Received:
        return work.arrive(broadcast, round, self.assets, self.device)

    def server(self, round: int | None) -> Server:
        return work.server(self.program, round, self.device, self.assets, self.progress)

    def init_parts(self, params: Vector, parts: Sequence[Any]) -> list[Any]:
        """The results of `Algorithm.init_part`, in the order of `parts`."""
        return [self.program.algorithm.init_part(self._init_server, params, part) for part in parts]

    @cached_property
    def _init_server(self) -> Server:
        return self.server(None)


@dataclass(frozen=True)
class Job(ABC, Generic[Result_co]):
    """Work for a client actor. The result depends only on fields and inputs, so any actor may run the job again."""

    # Arguments of `run`; a reference is replaced by the object behind it.
    inputs: tuple[Any, ...] = field(default=(), kw_only=True)
    cost: float = field(default=0.0, kw_only=True)  # the costliest jobs start first, which changes no result
    slot: int | None = field(default=None, kw_only=True)  # pool place of the client's dedicated actor, while it lives
    holder: int | None = field(default=None, kw_only=True)  # number of the only actor that can run the job
    near: str | None = field(default=None, kw_only=True)  # the node that should run it, if an actor there is idle

    @abstractmethod
    def run(self, workplace: Workplace, *inputs: Any) -> Result_co:
        """Run the job on an actor."""

    @property
    def keeps(self) -> bool:
        """Whether `run` returns (kept, told): kept stays in the object store; the driver gets a reference to it."""
        return False

    def with_inputs(self, *inputs: Any) -> Self:
        """This job with these inputs."""
        return replace(self, inputs=inputs)

    @property
    def kind(self) -> str:
        """The kind of job. Jobs of a kind take about equally long, or in proportion to their cost if they have one."""
        return type(self).__name__

    @property
    def alone(self) -> bool:
        """Whether no other job may run at the same time, so that this one has all the memory."""
        return False

    def after_death(self, node: str, death: Death, warn: Callable[[str], None]) -> Self:
        """The job to run instead, after the actor that ran this one has died on a node."""
        return self

    def unmarked(self) -> Self:
        """The job for a process that does not die and leave a client to be named: without marks on disk."""
        return self

    def at_work(self, node: str) -> str:
        """What an actor on a node is doing when it runs this job, in words."""
        return f"`{type(self).__name__}`"


class Worker(Protocol):
    """What ran a job: an actor, or this process."""

    @property
    def number(self) -> int: ...

    @property
    def node(self) -> str: ...


# Takes a result of a job by its key, from the worker that ran it; returns further jobs.
Taker = Callable[[Key, Result, Worker], Mapping[Key, Job[Result]]]


class Workers(Protocol):
    """What runs jobs: a pool of actors, or this process."""

    @property
    def size(self) -> int:
        """The number of jobs that can run at the same time."""

    def put(self, value: Any) -> Reference:
        """Put a value where jobs find it, as an input of several jobs."""

    def run(
        self, jobs: Mapping[Key, Job[Result]], on_result: Callable[[int], None] = lambda done: None
    ) -> dict[Key, Result]:
        """Run all jobs; returns their results in the order of `jobs`. `on_result` gets the number of results so far.

        Errors are those of `each`.
        """
        results: dict[Key, Result] = {}

        def take(key: Key, result: Result, worker: Worker) -> Mapping[Key, Job[Result]]:
            results[key] = result
            on_result(len(results))
            return {}

        self.each(jobs, take)
        return {key: results[key] for key in jobs}

    def each(self, jobs: Mapping[Key, Job[Result]], take: Taker[Key, Result]) -> None:
        """Run all jobs, and those that `take` returns for each result and the worker that gave it."""

    def fetch(self, reference: Reference) -> Any:
        """The value behind a reference."""

    def neighbours(self, jobs: int) -> list[str | None]:
        """The node that each of so many jobs should run on; None: any."""

    def lives(self, number: int | None) -> bool:
        """Whether the actor of this number lives."""

    def nodes_alive(self) -> set[str]:
        """The nodes that are alive."""


@final
@dataclass(frozen=True)
class Init(Job[tuple[ServerState, bool]]):
    """Make (the state that the first round starts from, whether theta_0 was in the cache)."""

    def run(self, workplace: Workplace) -> tuple[ServerState, bool]:
        return work.init(workplace.program, lambda: replace(workplace.server(None), spread=workplace.spread))


@final
@dataclass(frozen=True)
class InitPart(Job[list[Any]]):
    """Compute parts of `Algorithm.init`, sent by the actor that runs `Init`."""

    parts: tuple[Any, ...]

    def run(self, workplace: Workplace, params: Vector) -> list[Any]:
        return workplace.init_parts(params, self.parts)


@final
@dataclass(frozen=True)
class ServerTrain(Job[Update | None]):
    """Train the server's own part of a round, in parallel with the clients."""

    round: int

    def run(self, workplace: Workplace, broadcast: Broadcast) -> Update | None:
        algorithm, received = workplace.program.algorithm, workplace.receive(broadcast, self.round)
        update = algorithm.server_train(workplace.server(self.round), received)
        assert update is None or not update.vectors, "the server's vectors belong in ServerState.extra"
        if update is not None:
            try:
                check_update(update, sizes(workplace.layers, broadcast))
            except ValueError as error:
                raise RunError(f"{type(algorithm).__name__}.server_train: {error}") from error
        return update


@final
@dataclass(frozen=True)
class ServerFinish(Job[ServerState]):
    """Do the server's work after the aggregation."""

    round: int

    def run(self, workplace: Workplace, state: ServerState) -> ServerState:
        return workplace.program.algorithm.server_finish(workplace.server(self.round), state)


@final
@dataclass(frozen=True)
class Evaluate(Job[Evaluation]):
    """Score one shard of a split. `final`: as reported at the end of the run."""

    split: str
    shard: int
    shards: int
    round: int
    final: bool

    @property
    def kind(self) -> str:
        return f"Evaluate {self.split}{' finally' * self.final}"  # beam search takes far longer

    def run(self, workplace: Workplace, broadcast: Broadcast) -> Evaluation:
        received = workplace.receive(broadcast, self.round)
        return work.evaluate(workplace.program, self.split, self.shard, self.shards, received, self.final)
