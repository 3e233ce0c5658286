"""Clients that train side by side end with the models that they reach alone, and fail alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedray.algorithms import fedstar
from fedray.core.parameters import FlatModel
from fedray.core.types import Client, Received, Update
from fedray.data.features import dataset
from fedray.data.features.dataset import Batch
from fedray.engine.jobs.deaths import Doomed
from fedray.engine.lane.lane import Lane, LaneResult
from fedray.engine.lane.training import TrainLane
from fedray.training import seed_model, together
from fedray.training.recognition import Recognition
from fedray.training.stack import Call, Row, Stack
from tests.gpu.checks.algorithms import CONFORMER, cases, still
from tests.gpu.federation import Federation, sections
from tests.gpu.toys import Size, federation

RECOGNITION = {"kind": "recognition"}
CASES = {name: case for name, case in cases().items() if not name.startswith("fedmem")}  # FedMem trains nothing
# Nothing new about stacks, or a recurrent network whose frames take half a second.
LATER = (
    "fedrep crnn",
    "fedbabu crnn",
    "feddyn crnn",
    "fedntd crnn",
    "fedbn audio_cnn",
    "fednst crdnn",
    "fedbn crdnn",
    "fedavg crdnn",
)
SIZE = Size(clients=4, utterances=7, fewer=1)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make models and features float64. Vectors that are sent stay float32."""
    collate = dataset.collate

    def doubled(*arguments: Any, **options: Any) -> Batch:
        batch = collate(*arguments, **options)
        return replace(batch, features=batch.features.double())

    for module in (dataset, fedstar, seed_model):
        monkeypatch.setattr(module, "collate", doubled)
    for kind, name in ((FlatModel, "difference"), (FlatModel, "read"), (Row, "read")):
        method = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *a, method=method, **o: method(*a, **o).astype(np.float32))
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def played(case: dict[str, Any], size: int, quiet: bool = True, start: Any = None, rounds: int = 2) -> Federation:
    """A federation after its rounds, with `size` clients side by side; `quiet`: without dropout and SpecAugment."""
    case = deepcopy({"model": CONFORMER, "task": RECOGNITION, "rounds": rounds} | case)
    data = federation(replace(SIZE, labelled=case.pop("labelled", None)))
    made = Federation(sections(still(case) if quiet else case), data, "cpu", start, size)
    made.begun = made.state  # type: ignore[attr-defined]
    for _ in range(rounds):
        made.round()
    return made


def furthest(one: Federation, other: Federation) -> float:
    """The largest difference between two federations in any number that a run would keep."""
    pairs = ((array, other.numbers()[name]) for name, array in one.numbers().items() if array.dtype.kind == "f")
    return max(float(np.abs(array - of_other).max(initial=0.0)) for array, of_other in pairs)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n in LATER)) for n in CASES])
def test_side_by_side_is_one_by_one_in_float64(name: str, double: None) -> None:
    """In float64, clients of different sizes and utterance lengths end as they do one by one; the last train alone."""
    alone = played(CASES[name], 1)
    assert furthest(alone, played(CASES[name], 3, start=alone.begun)) < 1e-5  # type: ignore[attr-defined]


def test_with_dropout_the_same_bits_twice_and_others_than_alone() -> None:
    case = CASES["fedstar audio_cnn"]
    once, again, alone = (played(case, size, quiet=False, rounds=1) for size in (3, 3, 1))
    assert furthest(once, again) == 0 and furthest(once, alone) > 0


def test_every_step_draws_other_dropout_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks differ from step to step, even if clients draw nothing between two steps."""
    before, forward = [], Stack.forward

    def noted(self: Stack, calls: list[Any]) -> None:
        before.append(torch.get_rng_state().numpy().tobytes())
        forward(self, calls)

    monkeypatch.setattr(Stack, "forward", noted)
    case = deepcopy(CASES["fedavg crnn"])
    case["task"] = case.get("task", RECOGNITION) | {"augment": {"time_masks": 0, "frequency_masks": 0}}
    case["model"] = case["model"] | {"dropout": 0.5}
    played(case, 3, quiet=False, rounds=1)
    assert len(before) >= 4 and len(set(before)) == len(before)


def test_clients_of_a_call_have_dropout_masks_of_their_own() -> None:
    case = {"model": CONFORMER, "task": RECOGNITION, "rounds": 1, **CASES["fedavg conformer"]}
    made = Federation(sections(case), federation(SIZE), "cpu")
    stack, ones = Stack(made.algorithm.task, "cpu", 2), torch.ones(1, 100, 2)
    rows = [Row(stack, place, False, lambda call: None) for place in (0, 1)]
    for row in rows:
        row.load(made.state.params)

    def dropped(model: Any, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(features, 0.5)

    calls = [Call(stack, row, dropped, (ones, torch.tensor([100])), False) for row in rows]
    stack.forward(calls)
    one, other = (call.outputs[0] for call in calls)
    assert one.shape == ones.shape and not torch.equal(one, other)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the groups of calls that were made as one without an error."""
    found, forward = list[int](), Stack.forward
    monkeypatch.setattr(Stack, "forward", lambda self, calls: (forward(self, calls), found.append(len(calls)))[0])
    return found


def test_calls_are_made_together(sizes: list[int]) -> None:
    played(CASES["fedavg crnn"], 3, rounds=1)
    assert max(sizes) == 3 and sum(sizes) == 3 + 2 + 2 + 2, "steps of clients with 7, 6, 5 and 4 utterances"


def test_clips_of_one_length_are_made_together(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keywords have no padding. If their joint calls failed, the clients would pass alone, and only be slow."""
    monkeypatch.setitem(globals(), "SIZE", replace(SIZE, equal=True))
    played(CASES["fedavg crnn"], 3, rounds=1)
    assert max(sizes) == 3


def troubled(monkeypatch: pytest.MonkeyPatch, trouble: str, size: int) -> LaneResult:
    """Train four clients in a lane; c1 has trouble before its first step, within a model call, or after training."""
    data = federation(SIZE)
    if trouble == "within":
        features = data.load("c1").features
        row = SIZE.utterances  # c1's first
        features.rows[row], features.frames[row] = features.rows[row][:2], 2
    case = still({"model": CONFORMER, "task": RECOGNITION, "rounds": 1, **CASES["fedavg conformer"]})
    made = Federation(sections(case), data, "cpu")
    train = made.algorithm.client_update

    def update(client: Client, received: Received) -> Update:
        if client.id == "c1" and trouble == "before":
            raise KeyError("no label")
        done = train(client, received)
        if client.id == "c1" and trouble == "behind":
            raise KeyError("no answer")
        if client.id == "c1" and trouble == "memory":
            raise MemoryError
        return done

    monkeypatch.setattr(made.algorithm, "client_update", update)
    lane = Lane(0, 0, tuple((client, None) for client in data.client_ids()), together=size)
    return TrainLane(lane).run(made.workplace, made.first, made.first)


@pytest.mark.parametrize(
    ("trouble", "why"),
    [("before", "KeyError: 'no label'"), ("within", "ValueError: an utterance of 2 frames"), ("behind", "KeyError")],
)
def test_a_client_fails_alone(trouble: str, why: str, double: None, monkeypatch: pytest.MonkeyPatch) -> None:
    result, alone = (troubled(monkeypatch, trouble, size) for size in (3, 1))
    (failure,) = result.failures
    assert failure.client == "c1" and failure.reason.startswith(why) and "client_update" in failure.traceback
    assert list(result.reports) == list(alone.reports) == ["c0", "c2", "c3"]
    for client, report in result.reports.items():
        assert report == pytest.approx(alone.reports[client], abs=1e-6)
    ours, theirs = (lane.partial.updates.mean() for lane in (result, alone))
    assert np.abs(ours - theirs).max() < 1e-6


def test_memory_that_runs_out_dooms_the_actor_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    with pytest.raises(Doomed, match="ran out of memory"):
        troubled(monkeypatch, "memory", 2)
    assert threading.active_count() == before


def test_together_it_is_never_retried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether calls fit into memory together must not decide the bits of an update."""

    def forward(self: Stack, calls: list[Any]) -> None:
        raise MemoryError

    monkeypatch.setattr(Stack, "forward", forward)
    before = threading.active_count()
    with pytest.raises(Doomed, match="ran out of memory"):
        troubled(monkeypatch, "", 3)
    assert threading.active_count() == before


def test_a_method_of_a_model_is_refused_where_nobody_knows_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The method could run with the parameters of another client."""
    loss = Recognition.loss

    def encoded(self: Recognition, model: Any, batch: Batch, targets: Any) -> Any:
        model.encode(batch.features, batch.lengths)
        return loss(self, model, batch, targets)

    monkeypatch.setattr(Recognition, "loss", encoded)
    result = troubled(monkeypatch, "", 3)
    assert {failure.client for failure in result.failures} == {"c0", "c1", "c2", "c3"}
    assert "cannot call model.encode" in result.failures[0].reason and "vectorise=never" in result.failures[0].reason


def test_clients_with_other_frozen_parameters_are_refused() -> None:
    case = {"model": CONFORMER, "task": RECOGNITION, "rounds": 1, **CASES["fedlora conformer"]}
    made = Federation(sections(case), federation(SIZE), "cpu")
    stack, params = Stack(made.algorithm.task, "cpu", 2), made.state.params
    one, other = (Row(stack, place, False, lambda call: None) for place in (0, 1))
    one.load(params)
    other.load(params.copy())
    changed = params.copy()
    changed[-1] += 1
    with pytest.raises(ValueError, match="clients with different frozen parameters cannot be trained side by side"):
        other.load(changed)


def test_clients_start_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few clients are held at a time, however long one of them takes; updates come in the clients' order."""
    taken, given = [], []

    def clients() -> Iterator[Client]:
        for number in range(20):
            taken.append(number)
            yield Client(f"c{number}", None, number)

    def update(client: Client) -> Update:
        return Update(np.zeros(1, np.float32), {"examples": client.seed})

    for done in together.train(clients(), 4, update):
        assert isinstance(done, Update)
        given.append(done.report["examples"])
        assert len(taken) - len(given) <= 2 * 4
    assert given == list(range(20))
