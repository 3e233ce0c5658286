"""The memory of a training step, and of scoring, besides parameters, gradients and moments: what passes hold at once.

It is measured on this machine's CPU with one and two short utterances, and computed for a batch of the longest ones:
linear in the number of utterances, quadratic in their length (attention). A GPU's kernels may need less.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedray.data.features.dataset import Batch, Utterances, collate
from fedray.training.large import StepSettings, stepping
from fedray.training.task import Targets, Task, targets_at

SECONDS = 4.0  # of the longest utterance that is tried
DRAWS = 3  # of a training step, in which an encoder may leave out layers at random


def step_bytes(task: Task, data: Utterances, batch: int, how: StepSettings) -> int:
    """Bytes of a step on `batch` utterances, each as long as the longest of `data`."""
    flat = task.apart("cpu")
    flat.model.train()

    def step(tried: Batch, targets: Targets) -> None:
        with stepping(flat.model, how, "cpu"):
            flat.backward(task.loss(flat.model, tried, targets))

    return _largest(task, data, batch, min(batch, how.micro_batch or batch), step, DRAWS)


def score_bytes(task: Task, data: Utterances) -> int:
    """Bytes of the forward pass with which utterances as long as the longest of `data` are scored together."""
    flat, batch = task.apart("cpu"), min(len(data), task.scored_together)
    flat.model.eval()

    def score(tried: Batch, targets: Targets) -> None:
        with torch.no_grad():
            task.loss(flat.model, tried, targets)

    return _largest(task, data, batch, batch, score, draws=1)


def _largest(
    task: Task, data: Utterances, batch: int, together: int, work: Callable[[Batch, Targets], object], draws: int
) -> int:
    """Bytes of `work` on a batch of the longest utterance of `data`, of which `together` are computed at once.

    The most of so many `draws` of what is random in it.
    """
    longest = int(data.lengths.argmax())
    frames = int(data.lengths[longest])
    most = min(frames, max(1, round(SECONDS / task.features.hop_seconds)))
    targets = _targets(task, data.take(np.array([longest])))

    def tried(count: int, length: int, draws: int = draws) -> int:
        padded = collate(data, np.array([longest] * count))
        cut = replace(padded, features=padded.features[:, :length], lengths=torch.full((count,), length))
        mine = _cut(targets_at(targets, np.zeros(count, np.int64)), length / frames)
        peaks = []
        for draw in range(draws):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(draw)
                peaks.append(peak_bytes(lambda: work(cut, mine)))
        return max(peaks)

    tried(1, most, draws=1)  # the first pass loads what later ones find
    lengths = sorted({max(1, most // 3), max(1, 2 * most // 3), most})
    single = [tried(1, length) for length in lengths]
    common = max(0, 2 * single[-1] - tried(2, most))  # whatever the batch
    curve = np.polyfit(lengths, np.array(single, np.float64) - common, min(2, len(lengths) - 1))
    inputs = batch * collate(data, np.array([longest])).features.nbytes
    return round(inputs + common + together * max(single[-1] - common, float(np.polyval(curve, frames))))


def _targets(task: Task, data: Utterances) -> Targets:
    """The targets of utterances, or some target where they have none that can be used."""
    try:
        return task.targets(data)
    except ValueError:
        return np.zeros(len(data), np.int64) if hasattr(task, "classes") else [[1]] * len(data)


def _cut(targets: Targets, share: float) -> Targets:
    """The first part of each text; a class stays."""
    if isinstance(targets, np.ndarray):
        return targets
    return [
        target if hasattr(target, "transcript") else list(target)[: max(1, round(share * len(target)))]
        for target in targets
    ]


def peak_bytes(work: Callable[[], object]) -> int:
    """The most bytes of tensors made by `work` that exist at once."""
    live = _Live()
    with live:
        work()
    return live.peak


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the memory that operations allocate, until it is freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: dict[int, weakref.finalize[..., Any]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = {id(storage) for storage in _storages((args, kwargs))}
        made = func(*args, **(kwargs or {}))
        for storage in _storages(made):
            if id(storage) in before or (id(storage) in self._known and self._known[id(storage)].alive):
                continue
            size = storage.nbytes()
            self.now += size
            self.peak = max(self.peak, self.now)
            self._known[id(storage)] = weakref.finalize(storage, self._freed, size)
        return made

    def _freed(self, size: int) -> None:
        self.now -= size


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
