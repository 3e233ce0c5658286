"""The least memory that a run needs, as known before it: for the driver, for a client actor, for earlier models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedray.core.devices.settings import BufferedClock
from fedray.core.server_optimizers import SGD, Momentum
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.cluster.resources import ACTOR_BYTES, Node
from fedray.engine.jobs.work import Program
from fedray.training.large import StepSettings
from fedray.training.step_memory import score_bytes, step_bytes
from fedray.training.task import Task

# Of a parameter in training: model, gradient, the update, the lane's sum, and two for the moments of Adam or for what
# an algorithm keeps beside the model.
COPIES = 6
# Batches differ in length, so what one step frees has holes for the next: measured on an encoder of 95M parameters.
HOLES = 1.5


def actor_bytes(program: Program, together: int = 1, activations: float = 0.0) -> float:
    """Bytes of an actor: Python with torch, the models in training, the audio features of the largest client.

    `together`: clients that are trained side by side. `activations`: from `activation_bytes`. Broadcast and assets lie
    in Ray's shared memory.
    """
    needed = ACTOR_BYTES + HOLES * activations
    task, data = program.algorithm.task, program.data
    if isinstance(task, Task):
        needed += 4 * (task.layout.size + together * (COPIES - 1) * task.layout.training.trainable)
    if isinstance(data, SpeechData):
        largest = data.load(max(data.client_ids(), key=data.cost))
        needed += 2 * int(largest.lengths.sum()) * largest.features.bins
    return needed


def driver_bytes(program: Program) -> float:
    """Bytes of the driver: Python with torch, and when the server steps two models, their mean change, and a step.

    The moments of the server's optimiser are there twice too. A lower bound, which does not depend on the lanes: the
    clients' sums stay on the actors.
    """
    task, optimizer = program.algorithm.task, program.algorithm.server_optimizer
    if not isinstance(task, Task):
        return ACTOR_BYTES
    moments = 0 if isinstance(optimizer, SGD) else 1 if isinstance(optimizer, Momentum) else 2
    return ACTOR_BYTES + 4 * (2 * task.layout.size + (2 + 2 * moments) * task.layout.moving)


def beside_driver(program: Program, nodes: Sequence[Node]) -> list[Node]:
    """The nodes with the memory that the driver leaves. ValueError: its machine has too little for it."""
    needed = driver_bytes(program)
    for node in nodes:
        if node.driver and node.memory is not None and needed > node.memory:
            raise ValueError(
                f"the driver needs about {needed / 1e9:,.1f} GB of memory for the model, its change and the server's "
                f"optimiser, and Ray has {node.memory / 1e9:,.1f} GB on its machine: start the run on a larger one, or "
                "choose a smaller model or server_optimizer=sgd"
            )
    return [
        replace(node, memory=node.memory - needed) if node.driver and node.memory is not None else node
        for node in nodes
    ]


def activation_bytes(program: Program, together: int = 1) -> float:
    """Bytes of activations on the longest utterances: of a training step of `together` clients, or of scoring if more.

    0: they are not known.
    """
    task, data = program.algorithm.task, program.data
    client = getattr(program.algorithm.settings, "client", None)
    batch, how = getattr(client, "batch", None), client if isinstance(client, StepSettings) else StepSettings()
    if not isinstance(task, Task) or not isinstance(data, SpeechData) or batch is None:
        return 0.0
    scored = [part for split in data.splits() if len(part := data.evaluation(split))]
    step = together * step_bytes(task, data.training()[-1], batch, how)
    return float(max(step, *(score_bytes(task, part) for part in scored), 0))


def check_models(clock: Any, program: Program, nodes: Sequence[Node]) -> None:
    """Check memory on the driver's machine. ValueError: the models that clients under way train from do not fit there.

    The driver keeps each model in its memory, and once more in Ray's.
    """
    task, here = program.algorithm.task, next((node for node in nodes if node.driver), None)
    if not isinstance(clock, BufferedClock) or not isinstance(task, Task) or here is None or here.memory is None:
        return
    models = min(clock.concurrency, clock.most + 1)
    needed = models * 2 * 4.0 * task.layout.size
    if needed > here.memory:
        raise ValueError(
            f"clock: {models:,} models of earlier rounds need {needed / 1e9:,.1f} GB, and Ray has "
            f"{here.memory / 1e9:,.1f} GB on the driver's machine: lower clock.concurrency or clock.most"
        )
