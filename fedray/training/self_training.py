"""Self-training of a classifier on labelled and unlabelled clips side by side (FedSTAR, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softmax

from fedray.core.metrics import Metrics
from fedray.data.dataset import Utterances, collate
from fedray.training.classification import Classification
from fedray.training.local import ClientSettings, Steps


@dataclass(frozen=True)
class Guesses:
    """Pseudo-labels of a batch. All are constants: no gradient flows through them."""

    labels: Tensor  # int64 [batch]
    kept: Tensor  # bool [batch]


def pseudo_labels(logits: Tensor, temperature: float, threshold: float) -> Guesses:
    """The likeliest class of each clip by softmax(z / T), kept where its probability is above the threshold; z are [batch, classes]."""
    confidence, labels = softmax(logits.detach() / temperature, 1).max(1)
    return Guesses(labels, confidence > threshold)


def guessed_loss(logits: Tensor, guesses: Guesses) -> Tensor:
    """Cross-entropy with the pseudo-labels that are kept, over the whole batch: those that are not count as 0."""
    losses = cross_entropy(logits, guesses.labels, reduction="none")
    return torch.where(guesses.kept, losses, torch.zeros_like(losses)).sum() / len(losses)


def self_train(
    task: Classification,
    data: Utterances,
    settings: ClientSettings,
    beta: float,
    temperature: float,
    threshold: float,
    lr: float,
    seed: int,
    device: str,
    labelled_batch: int | None = None,
) -> Metrics:
    """Train the task's model in place on batches of `settings.batch` unlabelled clips and `labelled_batch` labelled ones (None: as many).

    An epoch is one pass over the unlabelled clips; the labelled ones beside them are repeated: all of them in a new order, time and again.
    Without unlabelled clips it is one pass over the labelled ones, without labelled ones the pseudo-labels are all there is to learn from.
    Returns `loss`, the mean of a step's whole loss by its clips; in percent, `labels_kept` of all pseudo-labels, and `label_accuracy` of
    those kept whose truth is known, which no training uses.
    """
    flat, generator = task.flat(device), np.random.default_rng(seed)
    steps = Steps(flat, settings, lr)
    unlabelled = data.unlabelled
    labelled = np.setdiff1d(np.arange(len(data)), unlabelled)
    classes = np.full(len(data), -1)
    classes[labelled] = task.targets(data.take(labelled))
    truth = task.known(data)
    counts = dict.fromkeys(("clips", "guessed", "kept", "known", "right"), 0)
    total = 0.0
    repeated = _repeated(labelled, generator)
    flat.model.train()
    for _ in range(settings.epochs):
        order = generator.permutation(unlabelled if len(unlabelled) else labelled)
        for start in range(0, len(order), settings.batch):
            part = order[start : start + settings.batch]
            mine, guessed = (part, part[:0]) if not len(unlabelled) else (_next(repeated, labelled_batch or len(part)), part)
            batch = task.augment(collate(data, np.concatenate([mine, guessed])).to(device))
            logits = flat.model(batch.features, batch.lengths)
            loss = logits.new_zeros(())
            if len(mine):
                loss = cross_entropy(logits[: len(mine)], torch.from_numpy(classes[mine]).to(device))
            if len(guessed):
                guesses = pseudo_labels(logits[len(mine) :], temperature, threshold)
                loss = loss + beta * guessed_loss(logits[len(mine) :], guesses)
                kept, answers = guesses.kept.cpu().numpy(), guesses.labels.cpu().numpy()
                known = kept & (truth[guessed] >= 0)
                counts["guessed"] += len(guessed)
                counts["kept"] += int(kept.sum())
                counts["known"] += int(known.sum())
                counts["right"] += int((answers == truth[guessed])[known].sum())
            total += steps.backward(loss) * len(batch)
            steps.step()
            counts["clips"] += len(batch)
    return Metrics(
        loss=(total, counts["clips"]),
        labels_kept=(100.0 * counts["kept"], counts["guessed"]),
        label_accuracy=(100.0 * counts["right"], counts["known"]),
    )


def _repeated(positions: np.ndarray, generator: np.random.Generator) -> Iterator[int]:
    """All positions in a random order, then all in another, without end; nothing where there are none."""
    while len(positions):
        yield from generator.permutation(positions).tolist()


def _next(stream: Iterator[int], count: int) -> np.ndarray:
    return np.fromiter((position for _, position in zip(range(count), stream, strict=False)), np.int64)
