"""How much memory a client actor of a run needs at least, from what is known before the run."""

from __future__ import annotations

from fedray.data.federation.speech_data import SpeechData
from fedray.engine.resources import ACTOR_BYTES
from fedray.engine.work import Program
from fedray.training.task import Task

COPIES = 6  # of a parameter in training: model, gradient, two moments of Adam, the update, the lane's sum


def actor_bytes(program: Program, together: int = 1) -> float:
    """Bytes of an actor: Python with torch, the models in training, the audio features of the largest client.

    `together`: clients that are trained side by side. A lower bound: activations are not known. Broadcast and assets
    lie in Ray's shared memory.
    """
    needed = ACTOR_BYTES
    task, data = program.algorithm.task, program.data
    if isinstance(task, Task):
        needed += 4 * (task.layout.size + together * (COPIES - 1) * task.layout.trainable)
    if isinstance(data, SpeechData):
        largest = data.load(max(data.client_ids(), key=data.cost))
        needed += 2 * int(largest.lengths.sum()) * largest.features.bins
    return needed
