"""Two classifiers that learn from the same batches and from each other (deep mutual learning; Zhang et al., CVPR 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from fedray.core.config import positive
from fedray.core.metrics import Metrics
from fedray.core.parameters import FlatModel
from fedray.data.dataset import Utterances, batches
from fedray.training.classification import Classification
from fedray.training.local import LocalSettings, clip_gradient, finite

ORDERS = ("together", "personal_first")


@dataclass(frozen=True)
class MutualSettings:
    personal: float = 1.0  # weight of KL(plug-in || personal) in the personal model's loss; 0: it learns from labels alone
    plugin: float = 1.0  # weight of KL(personal || plug-in) in the plug-in's
    temperature: float = 1.0
    order: str = "together"  # together: both answer before either steps | personal_first: the plug-in learns from the stepped model

    def __post_init__(self) -> None:
        positive(temperature=self.temperature)
        if min(self.personal, self.plugin) < 0:
            raise ValueError("the weights personal and plugin must not be below 0")
        if self.order not in ORDERS:
            raise ValueError(f"order is {' or '.join(ORDERS)}, not {self.order!r}")


def mutual_sgd(
    personal: Classification,
    plugin: Classification,
    data: Utterances,
    settings: LocalSettings,
    mutual: MutualSettings,
    lr: float,
    seed: int,
    device: str,
) -> Metrics:
    """Train both tasks' models in place; the mean losses an utterance, `loss` of the plug-in and `personal_loss`."""
    small, large = plugin.flat(device), personal.flat(device)
    small.model.train()
    large.model.train()
    targets, generator = plugin.targets(data), np.random.default_rng(seed)
    total = {"loss": 0.0, "personal_loss": 0.0}
    count = 0
    for _ in range(settings.epochs):
        for batch in batches(data, settings.batch, generator):
            moved = plugin.augment(batch.to(device))
            classes = plugin.classes_of(moved, targets)
            z_plugin = small.model(moved.features, moved.lengths)
            z_personal = large.model(moved.features, moved.lengths)
            loss = taught(z_personal, z_plugin, classes, mutual.personal, mutual.temperature)
            total["personal_loss"] += _step(large, loss, lr, settings.clip) * len(batch)
            if mutual.order == "personal_first":
                z_personal = large.model(moved.features, moved.lengths)
            loss = taught(z_plugin, z_personal, classes, mutual.plugin, mutual.temperature)
            total["loss"] += _step(small, loss, lr, settings.clip) * len(batch)
            count += len(batch)
    return Metrics.of({name: (value, count) for name, value in total.items()})


def taught(logits: Tensor, teacher: Tensor, classes: Tensor, weight: float, temperature: float) -> Tensor:
    """CE(logits, classes) + weight T^2 KL(softmax(teacher / T) || softmax(logits / T)), batch means; the teacher is a constant."""
    loss = cross_entropy(logits, classes)
    if not weight:
        return loss
    mine, its = log_softmax(logits / temperature, 1), log_softmax(teacher.detach() / temperature, 1)
    return loss + weight * temperature**2 * kl_div(mine, its, reduction="batchmean", log_target=True)


def _step(flat: FlatModel, loss: Tensor, lr: float, clip: float | None) -> float:
    flat.gradient.zero_()
    loss.backward()
    value = finite(float(loss.detach()))
    clip_gradient(flat, clip)
    flat.values[: flat.layout.trainable].add_(flat.gradient, alpha=-lr)
    return value
