"""The memory that a run needs, as known before it: for a client actor, and for models of earlier rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedray.core.devices.settings import BufferedClock
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.cluster.resources import ACTOR_BYTES, Node
from fedray.engine.jobs.work import Program
from fedray.training.step_memory import step_bytes
from fedray.training.task import Task

COPIES = 6  # of a parameter in training: model, gradient, two moments of Adam, the update, the lane's sum
LARGE = 10_000_000  # parameters; a step of a smaller model needs little beside the actor itself


def actor_bytes(program: Program, together: int = 1, step: float = 0.0) -> float:
    """Bytes of an actor: Python with torch, the models in training, the audio features of the largest client.

    `together`: clients that are trained side by side. `step`: bytes of a training step (`training_bytes`). Broadcast
    and assets lie in Ray's shared memory.
    """
    needed = ACTOR_BYTES + step
    task, data = program.algorithm.task, program.data
    if isinstance(task, Task):
        needed += 4 * (task.layout.size + together * (COPIES - 1) * task.layout.training.trainable)
    if isinstance(data, SpeechData):
        largest = data.load(max(data.client_ids(), key=data.cost))
        needed += 2 * int(largest.lengths.sum()) * largest.features.bins
    return needed


def training_bytes(program: Program, together: int = 1) -> float:
    """Bytes of activations in a training step of the longest utterances, for `together` clients; 0: not known."""
    task, data = program.algorithm.task, program.data
    batch = getattr(getattr(program.algorithm.settings, "client", None), "batch", None)
    if not isinstance(task, Task) or not isinstance(data, SpeechData) or batch is None:
        return 0.0
    return float(together * step_bytes(task, data.training()[-1], batch))


def is_large(program: Program) -> bool:
    """Whether the model is so large that its activations may decide how many actors fit."""
    task = program.algorithm.task
    return isinstance(task, Task) and task.layout.size >= LARGE


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
