"""Models of one client have weights of their own, alone and beside other clients; a loss of one's own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from fedray.algorithms import ALGORITHMS
from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, trained
from fedray.core.metrics import Metrics
from fedray.core.types import Client, Received
from fedray.data.features.dataset import Batch
from fedray.training.local import LocalModel
from fedray.training.task import Targets
from tests.gpu.checks.algorithms import CLASSIFY
from tests.gpu.federation import Federation
from tests.training.test_together import played

SGD = {"lr": 0.05, "batch": 4, "clip": None}


class Distilled(FederatedSGD):
    """CE + KL to a teacher, which another LocalModel of the same client is (house: two models never alias)."""

    Settings = SGDSettings
    frozen = False

    def client_train(self, client: Client, received: Received) -> Trained:
        student, teacher = self.local_model(received), self.local_model(received)
        assert student.flat is not teacher.flat
        if self.frozen:
            teacher = student.teacher()
        before, distances = teacher.params(), list[float]()

        def loss(model: LocalModel, batch: Batch, targets: Targets) -> Tensor:
            logits, classes = model.logits(batch), torch.from_numpy(np.asarray(targets)).to(model.device)
            answers = teacher.logits(batch).detach()
            far = kl_div(log_softmax(logits, 1), log_softmax(answers, 1), reduction="batchmean", log_target=True)
            distances.append(float(far.detach()))
            return cross_entropy(logits, classes) + far

        targets = self.task.targets(client.data)
        losses = student.fit(client.data, targets, self.local_settings(received), client.seed, loss=loss)
        assert np.array_equal(teacher.params(), before)
        return trained(student, client.data, losses, scores=Metrics(far=(distances[-1], 1)))


class Taught(Distilled):
    """The same with `teacher()`."""

    frozen = True


class Plain(FederatedSGD):
    """FedAvg whose loss is the task's, given by hand."""

    Settings = SGDSettings

    def client_train(self, client: Client, received: Received) -> Trained:
        model, targets = self.local_model(received), self.task.targets(client.data)
        losses = model.fit(client.data, targets, self.local_settings(received), client.seed, loss=LocalModel.task_loss)
        return trained(model, client.data, losses)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    ALGORITHMS.update(distilled=Distilled, taught=Taught, plain=Plain)
    yield


def case(kind: str) -> dict[str, Any]:
    algorithm = {"kind": kind, "client": SGD, "pretrain": {"steps": 0}}
    return {"algorithm": algorithm, "model": {"kind": "crnn", "size": "lite"}, "task": CLASSIFY}


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("kind", ["distilled", "taught"])
def test_a_teacher_stays_where_it_was_and_the_student_leaves_it(kind: str, together: int) -> None:
    made = played(case(kind), together, rounds=1)
    assert made.round()["far"] > 1e-6


def test_a_teacher_is_not_trained() -> None:
    made = played(case("plain"), 1, rounds=1)
    model = LocalModel(made.algorithm.task, made.state.params, "cpu")
    with pytest.raises(TypeError, match="a Teacher is frozen"):
        model.teacher().descend(torch.zeros((), requires_grad=True), None)  # type: ignore[arg-type]


def test_the_loss_of_the_task_given_by_hand_changes_no_bit() -> None:
    one, other = played(case("fedavg"), 1), played(case("plain"), 1)
    assert np.array_equal(one.state.params, other.state.params)


def test_models_that_nobody_refers_to_are_used_again() -> None:
    made: Federation = played(case("fedavg"), 1, rounds=1)
    task = made.algorithm.task
    first = LocalModel(task, made.state.params, "cpu")
    flat, second = first.flat, LocalModel(task, made.state.params, "cpu")
    assert second.flat is not flat and task.flat("cpu") not in (flat, second.flat)
    del first
    gc.collect()
    assert LocalModel(task, made.state.params, "cpu").flat is flat
