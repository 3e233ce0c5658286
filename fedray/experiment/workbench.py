"""A round in one's hand: data, task, algorithm and state of a configuration in this process, without Ray."""

from __future__ import annotations

import copy
import difflib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fedray.core.algorithm import Algorithm
from fedray.core.parallel import Item, Result
from fedray.core.types import Change, Client, Evaluation, Received, ServerState, Update, Vector
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.actors import gpu
from fedray.engine.actors.serial import SerialPool, StatesInMemory
from fedray.engine.jobs.job import Init
from fedray.engine.jobs.work import Program, asset_bytes
from fedray.engine.lane import personal
from fedray.engine.lane.book import LaneBook
from fedray.engine.options.chosen import chosen
from fedray.engine.round.plan import Plan
from fedray.engine.round.records import record, row_of, store_prepared
from fedray.engine.round.rounds import Rounds
from fedray.engine.telemetry.progress import Display
from fedray.experiment.builders import build_data, build_plan, build_program
from fedray.experiment.checks import check
from fedray.experiment.config import Config, Given, load, register, tell_replaced
from fedray.experiment.learnable import tell_slow, tell_unlearnable
from fedray.runs import places
from fedray.runs.client_states import ClientStore
from fedray.runs.folder import RunFolder
from fedray.runs.progress import Progress


def open(
    config: Given, overrides: Iterable[str] = (), *, algorithms: Mapping[str, type[Algorithm]] | None = None
) -> Workbench:
    """Open a configuration in this process, to step through its rounds. The arguments are those of `fedray.run`.

    Torch uses one thread from here on and deterministic kernels, as client actors do: rounds have the same bits as in
    a run. Data, features and seed models come from the cache that runs fill too. ValueError: the configuration or the
    data are not usable.
    """
    register(algorithms)
    loaded, source = load(config, overrides)
    checked = check(loaded, source)
    tell_replaced(loaded, source)
    gpus = float(torch.cuda.is_available() and checked.engine.gpus_per_client != 0)
    gpu.set_up(gpus)
    tell_slow(checked, gpus)
    data, _ = build_data(checked, source, _one_by_one)
    states = StatesInMemory()
    program = build_program(checked, data, states, gpus)
    gpu.keep_activations(program.large)
    tell_unlearnable(checked, program.algorithm, data)
    plan = build_plan(checked, program, gpus)
    # Dedicated actors train the same clients in the same order; here there are no actors.
    plan = replace(plan, engine=replace(plan.engine, placement="pooled"))
    return Workbench(checked, program, plan, "cuda" if gpus else "cpu")


@dataclass(frozen=True)
class RunState:
    """A run between two rounds, as a value: a step from it changes nothing in it, and can be repeated."""

    progress: Progress = field(repr=False)
    initial: ServerState = field(repr=False)  # before round 1
    states: Mapping[str, bytes] = field(repr=False)  # the clients' states, by hash
    store: ClientStore | None = field(default=None, repr=False)  # of the run folder that it began from, with others

    @property
    def round(self) -> int:
        """The number of rounds done."""
        return self.progress.round

    @property
    def server(self) -> ServerState:
        """The server's state: theta_t, and what else the algorithm keeps there."""
        return self.progress.state

    @property
    def params(self) -> Vector:
        """theta_t, [size]."""
        return self.server.params


class Workbench:
    """A run that is stepped through. An error of a client is raised where it happens, with a note of its round.

    `config`, `data`, `task`, `algorithm`: as a run has them. `device`: where clients train.
    """

    def __init__(self, config: Config, program: Program, plan: Plan, device: str) -> None:
        self.config, self.plan, self.device = config, plan, device
        self.data: SpeechData = program.data  # type: ignore[assignment]  # of build_data
        self.algorithm, self.task = program.algorithm, program.algorithm.task
        self._program, self._assets = program, program.algorithm.assets(program.data)
        self._states: StatesInMemory = program.states  # type: ignore[assignment]  # of `open`
        self._say: Callable[[int, int, str], None] = lambda done, of, what: None
        self._pool = SerialPool(program, self._assets, device, lambda done, of, what: self._say(done, of, what))

    def __repr__(self) -> str:
        return f"<Workbench {self.config.name}: {len(self.data.client_ids()):,} clients, seed {self.config.seed}>"

    def start(self) -> RunState:
        """The state before the first round: the seed model comes from the cache, or is trained."""
        self._states.restore({}, None)
        with Display.for_terminal() as display:
            self._say = display.progress
            initial, _ = self._pool.run({0: Init()})[0]
        self._say = lambda done, of, what: None
        progress, rounds = Progress(initial), self._new_rounds()
        rounds.start(initial)
        if self.plan.engine.prepare == "all" and self.algorithm.overrides("client_prepare"):
            store_prepared(progress, *rounds.prepare(self.data.client_ids()))
        return RunState(progress, initial, self._states.taken(progress.files()))

    def load(self, folder: str | os.PathLike[str], round: int | None = None) -> RunState:
        """The state in a run's checkpoint (None: the newest), to step on from there. The run folder is not changed.

        ValueError: there is no such checkpoint.
        """
        run = RunFolder(places.place(folder))
        run.check_is_run()
        saved = run.saved_rounds()
        if not saved or round not in (None, *saved):
            which = "" if round is None else f" of round {round}"
            raise ValueError(f"{run.place} has no checkpoint{which}: it has those of rounds {saved} (engine.keep)")
        progress = run.load(saved[-1] if round is None else round)
        return RunState(progress, run.load(0).state, {}, run.states)

    def step(self, state: RunState) -> tuple[RunState, dict[str, Any]]:
        """Run a round: the state after it, and its row as in metrics.jsonl, without times."""
        rounds, before = self._rounds(state)
        outcome = rounds.train(before)
        server = rounds.finish(before, outcome)
        after, _ = record(before, outcome, server)
        scored = rounds.score(server, after.round) if self.plan.scores(after.round) else None
        following = replace(state, progress=after, states=self._states.taken(after.files()))
        return following, row_of(self.algorithm, before, after, outcome, scored)

    def cohort(self, state: RunState) -> Sequence[str]:
        """The clients of the next round."""
        rounds, progress = self._rounds(state)
        return rounds.draw(progress).chosen

    def received(self, state: RunState) -> Received:
        """What the clients of the next round receive."""
        rounds, progress = self._rounds(state)
        return self._pool.workplace.receive(rounds.put(progress.state, progress.round).clients, progress.round)

    def client(self, state: RunState, name: str) -> Client:
        """A client as the algorithm sees it in the next round: its data, seed and state, prepared if it is new."""
        return self._ready(state, name)[0]

    def update(self, state: RunState, client: str | Client) -> Update:
        """What a client sends in the next round, as the algorithm returns it, whether or not it is in the cohort.

        A `Client` from `client` may be changed before, such as to fewer utterances.
        """
        ready, received = self._ready(state, client if isinstance(client, str) else client.id)
        ready = ready if isinstance(client, str) else client
        try:
            update = next(iter(self.algorithm.lane_update(iter([ready]), received)))
            if isinstance(update, Exception):
                raise update
        except Exception as error:
            error.add_note(f"client {ready.id} in round {state.round + 1}")
            raise
        return update

    def change(self, state: RunState) -> Change:
        """What the server update gets in the next round: the weighted mean of the cohort's updates."""
        rounds, progress = self._rounds(state)
        return rounds.change(progress, rounds.train(progress))

    def evaluate(self, state: RunState, split: str = "dev", final: bool = False) -> Evaluation:
        """The scores of theta_t on a split. `final`: with the slower searches, and a row for each utterance."""
        if split not in self.data.splits():
            raise ValueError(f"there is no split {split!r}: there are {', '.join(self.data.splits())}")
        rounds, progress = self._rounds(state)
        return rounds.evaluate(progress.state, progress.round, [split], final)[split]

    def evaluate_personal(self, state: RunState, name: str, split: str = "dev") -> Evaluation:
        """The scores of a client's personal model on its part of a split, or on the whole of it."""
        client, received = self._ready(state, name)
        part = self.data.client_part(name, split)
        data = {split: personal.part(self._program, split, None) if part is None else part}
        return personal.score(self._program, client, received, data)[split]

    def _ready(self, state: RunState, name: str) -> tuple[Client, Received]:
        """A client of the next round with what it receives, and the global generators seeded for its training."""
        if name not in (ids := self.data.client_ids()):
            near = difflib.get_close_matches(name, ids, 3) or list(ids[:3])
            raise ValueError(f"there is no client {name!r}: `data.client_ids()` has {len(ids):,}, such as {near}")
        rounds, progress = self._rounds(state)
        lanes = [lane for lane in rounds.draw(progress).lanes if name in dict(lane.clients)]
        lane = (lanes or rounds.lanes(progress, [name]))[0]
        lane = replace(lane, clients=((name, dict(lane.clients)[name]),), marker=None)
        broadcast, first = rounds.job(lane, rounds.put(progress.state, progress.round)).inputs
        book = LaneBook.of(self._pool.workplace, lane, broadcast, first)
        return next(book.clients()), book.received

    def _rounds(self, state: RunState) -> tuple[Rounds, Progress]:
        """Rounds that go on from a state, and a copy of its progress, which they may change."""
        self._states.restore(state.states, state.store)
        progress = replace(state.progress, clients=dict(state.progress.clients), totals=dict(state.progress.totals))
        progress.state = copy.deepcopy(state.server)
        rounds = self._new_rounds()
        rounds.go_on(state.initial, progress)
        return rounds, progress

    def _new_rounds(self) -> Rounds:
        rounds = Rounds(self._program, self.plan, self._pool, Path(), asset_bytes(self._assets), _tell)
        rounds.options = chosen(rounds)
        return rounds


def _tell(kind: str, data: Mapping[str, Any]) -> None:
    if kind == "warning":
        print(f"warning: {data['text']}", file=sys.stderr)


def _one_by_one(function: Callable[[Item], Result], items: Sequence[Item], what: str) -> Iterator[Result]:
    """A `Parallel` in this process, with a progress bar."""
    with Display.for_terminal() as display:
        for done, item in enumerate(items, 1):
            yield function(item)
            display.progress(done, len(items), what)
