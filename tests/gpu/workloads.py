"""Models of the sizes in papers and configurations, and a client that trains each of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedray.config import shipped
from fedray.config import source as sources
from fedray.core.seeds import seed_all
from fedray.core.types import Client, Update
from fedray.data.features.dataset import Batch, Utterances, batches
from fedray.training import together
from fedray.training.local import LocalModel
from fedray.training.optimizers import ClientSettings
from fedray.training.task import Targets, Task
from tests.gpu.federation import sections, task_of
from tests.gpu.record import Where
from tests.gpu.toys import Size, federation

CLIPS = Size(clients=1, utterances=20, letters=(8, 8), equal=True, words=26, alphabet=26)  # of 0.96 s
SENTENCES = Size(clients=1, utterances=20, letters=(20, 30), alphabet=26)  # of 2.4 to 3.6 s
READ = Size(clients=1, utterances=12, letters=(70, 110), alphabet=26, bins=80)  # of 8 to 13 s
# As in the FedNST paper; see ConformerSettings.
CONFORMER_S = {
    "kind": "conformer",
    "front": "conv2d",
    "d_model": 144,
    "layers": 12,
    "ffn": 1024,
    "kernel": 31,
    "attention": "RelPosMHAXL",
    "decoder_layers": 4,
}
CLASSIFY = {"kind": "classification"}


@dataclass(frozen=True)
class Workload:
    """A client's data and model."""

    values: dict[str, Any]  # sections of a configuration
    size: Size
    batch: int
    tiny: dict[str, Any] = field(default_factory=dict)  # keys of the model if everything is small


def workloads() -> dict[str, Workload]:
    """The workloads by name, the quickest first."""
    return {
        "crnn lite": Workload({"model": {"kind": "crnn", "size": "lite"}, "task": CLASSIFY}, CLIPS, 16),
        "crnn base": Workload({"model": {"kind": "crnn", "size": "base"}, "task": CLASSIFY}, CLIPS, 16),
        "audio_cnn": Workload({"model": {"kind": "audio_cnn"}, "task": CLASSIFY}, replace(CLIPS, bins=64), 16),
        "conformer embedded": Workload(_shipped("fednst/embedded"), SENTENCES, 6),
        "crdnn embedded": Workload(_shipped("gao/embedded"), SENTENCES, 6),
        "conformer-s": Workload(
            {"model": CONFORMER_S, "task": {"kind": "recognition", "ctc_weight": 0.3}},
            READ,
            6,
            {"layers": 1, "decoder_layers": 1},
        ),
        "crdnn common_voice": Workload(
            _shipped("gao/common_voice_fr"),
            READ,
            6,
            {
                "rnn_layers": 1,
                "rnn_neurons": 8,
                "dnn_neurons": 8,
                "channels": [4, 4, 4],
                "decoder_neurons": 8,
                "attention": 8,
            },
        ),
    }


def _shipped(name: str) -> dict[str, Any]:
    """The model and the loss of a shipped configuration, on characters."""
    values = sources.read(shipped.locate("configs", name)).values
    task = {key: value for key, value in values["task"].items() if key in ("kind", "ctc_weight", "augment")}
    return {"model": values["model"], "task": task}


class Trainer:
    """A model and the data of one client, on a device."""

    def __init__(self, name: str, where: Where, batch: int | None = None) -> None:
        """`batch`: utterances a step (None: as the workload says); a client takes at least two steps."""
        workload = workloads()[name]
        size, values = workload.size, copy.deepcopy(workload.values)
        self.batch = batch or workload.batch
        size = replace(size, utterances=max(size.utterances, 2 * self.batch))
        if where.tiny:
            size = replace(size, utterances=4, letters=(8, 8) if size.equal else (6, 8), words=4, alphabet=4)
            values["model"] |= workload.tiny
            self.batch = min(self.batch, 2)
        self.where = where
        data = federation(size)
        self.task: Task = task_of(sections(values | {"features": {"bins": size.bins}}), data)
        self.data: Utterances = data.load("c0")
        self.targets: Targets = self.task.targets(self.data)
        seed_all(0, name)
        self.start = self.task.initial()
        self.settings = ClientSettings(lr=0.01, batch=self.batch)
        self.clients = 0

    @property
    def parameters(self) -> int:
        return self.task.layout.trainable

    @property
    def steps(self) -> int:
        """Gradient steps of a client."""
        return -(-len(self.data) // self.batch)

    def client(self) -> float:
        """Train a client as a round does, from the broadcast to its update, and return the mean loss."""
        self.clients += 1
        seed_all(0, "client", self.clients)
        model = LocalModel(self.task, self.start, self.where.device)
        losses = model.fit(self.data, self.targets, self.settings, self.clients)
        assert np.isfinite(model.delta()).all()
        return losses["loss"]

    def clients_a_second(self, seconds: float, size: int = 1) -> float:
        """Clients trained a second, `size` side by side: times at least `size`, after `size` more as a warm-up."""

        def group() -> None:
            if size == 1:
                self.client()
            else:
                self.lane(size, size)

        group()
        self.where.wait()
        since, done = time.perf_counter(), 0
        while not done or time.perf_counter() - since < seconds:
            group()
            done += size
        self.where.wait()
        return done / (time.perf_counter() - since)

    def lane(self, clients: int, size: int) -> None:
        """Train clients, `size` of them side by side."""
        numbers = range(self.clients + 1, self.clients + clients + 1)
        self.clients += clients

        def named() -> Iterator[Client]:
            for number in numbers:
                seed_all(0, "client", number)
                yield Client(f"c{number}", self.data, number)

        def update(client: Client) -> Update:
            model = LocalModel(self.task, self.start, self.where.device)
            losses = model.fit(self.data, self.targets, self.settings, client.seed)
            return Update(model.delta(), {"loss": losses["loss"]})

        for done in together.train(named(), size, update):
            if isinstance(done, Exception):
                raise done
            assert np.isfinite(done.delta).all()

    def step(self) -> Callable[[], None]:
        """A function that takes one step on the largest batch, which is already on the device."""
        model = LocalModel(self.task, self.start, self.where.device)
        model.flat.model.train()
        batch, targets = self.largest()
        moved = batch.to(self.where.device)

        def step() -> None:
            model.flat.backward(self.task.loss(model.flat.model, moved, targets))
            model.flat.weights.add_(model.flat.gradient, alpha=-1e-3)

        return step

    def largest(self) -> tuple[Batch, Targets]:
        """The batch of the longest utterances, on the processor, and its targets."""
        found: Iterator[Batch] = batches(self.data, self.batch, None)
        batch = list(found)[len(self.data) // self.batch - 1]
        at = batch.positions
        targets: Targets = (
            self.targets[at] if isinstance(self.targets, np.ndarray) else [self.targets[position] for position in at]
        )
        return batch, targets


def milliseconds(work: Callable[[], object], where: Where, seconds: float) -> float:
    """The median duration of `work` in milliseconds, after three calls as a warm-up (one on the processor)."""
    for _ in range(3 if where.gpu else 1):
        work()
    where.wait()
    taken: list[float] = []
    begun = time.perf_counter()
    while not taken or time.perf_counter() - begun < seconds:
        since = time.perf_counter()
        work()
        where.wait()
        taken.append(time.perf_counter() - since)
    return 1000 * float(np.median(taken))
