"""FedSTAR: federated self-training of audio classifiers on clients with few labels.

Tsouvalas, Saeed, Ozcelebi. Federated Self-Training for Semi-Supervised Audio Recognition. 2021.

    theta_0 <- random weights, or pre-trained ones                      # model.init; see fedray.training.contrastive
    for t = 0 .. T - 1:
        tau_t <- last - (last - first) / 2 (1 + cos(pi t / T))          # the threshold rises from `first` to `last`
        S_t <- a sample of the clients
        on each client i in S_t, with D_L^i labelled and D_U^i unlabelled:
            theta_i <- theta_t
            for each of E passes over D_U^i, a batch u of it with |l| = min(|u|, |D_L^i|) of D_L^i, which repeats:
                z_l, z_u <- f(x_l; theta_i), f(x_u; theta_i)            # one forward pass, in training mode
                y_u  <- argmax softmax(z_u / temperature)               # a constant
                kept <- max softmax(z_u / temperature) > tau_t
                theta_i <- Adam(theta_i, grad[ CE(z_l, y_l) + beta / |u| sum_{j in u, kept} CE(z_j, y_j) ], eta_C)
            Delta_i <- theta_i - theta_t,  n_i <- |D_L^i| + |D_U^i|
        theta_{t+1} <- ServerOpt(theta_t, -sum_i n_i / n  Delta_i, eta)

Adam starts afresh each round. A client without unlabelled clips makes E passes over its labelled ones; a client without
labelled clips trains on its pseudo-labels alone. With first = last the threshold is fixed. beta = 0 keeps the steps but
ignores the pseudo-labels. Ours: l is no larger than D_L^i, and `labelled_batch` sets its size. `weights: authors`
weights the two losses by 1 - beta and beta, as the authors' code does, which also runs at temperature 1.
Baselines: FedAvg with `labelled_only` is the supervised federation, `sl` the central model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softmax

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, trained
from fedray.core.algorithm import Setup
from fedray.core.metrics import Metrics
from fedray.core.ranges import Amount, Count, Positive, Ranged, Share, one_of
from fedray.core.types import Broadcast, Client, FederatedData, Received, ServerState
from fedray.data.features.dataset import Utterances, collate
from fedray.training.classification import Classification
from fedray.training.labelled import check_labelled
from fedray.training.means import Mean
from fedray.training.optimizers import ClientOptimizer, ClientSettings

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ThresholdSettings(Ranged):
    """tau, the probability that a pseudo-label must exceed: it follows half a cosine from `first` to `last`."""

    first: Share = 0.5  # a probability, in the first round
    last: Share = 0.9  # a probability, after the last round

    def at(self, round: int, rounds: int) -> float:
        """tau in round `round` of `rounds`."""
        return self.last - (self.last - self.first) / 2 * (1 + math.cos(math.pi * round / rounds))


@dataclass(frozen=True)
class FedSTARSettings(SGDSettings):
    """Settings of FedSTAR."""

    beta: Amount = 0.5  # weight of the pseudo-labels' loss
    # Weight of the labelled clips' loss in a step with both: paper (1, equation 7) | authors (1 - beta, in their code).
    weights: str = one_of(("paper", "authors"))
    # T, the temperature of the softmax that makes pseudo-labels: 4 in the paper, 1 in the authors' code.
    temperature: Positive = 4.0
    threshold: ThresholdSettings = field(default_factory=ThresholdSettings)
    # Labelled clips in a step; null: as many as unlabelled ones, as in the paper, but no more than the client has.
    labelled_batch: Count | None = None
    # `batch` counts unlabelled clips.
    client: ClientSettings = field(default_factory=lambda: ClientSettings(1e-3, 32, 1, None, "adam", 1e-4))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights == "authors" and self.beta > 1:
            raise ValueError(f"weights=authors gives the labelled clips 1 - beta: beta is at most 1, not {self.beta}")


class FedSTAR(FederatedSGD):
    """Clients keep no state."""

    Settings = FedSTARSettings
    settings: FedSTARSettings
    task: Classification
    makes_labels = True

    @classmethod
    def check_setup(cls, settings: FedSTARSettings, setup: Setup) -> None:
        if not issubclass(setup.task_class, Classification):
            raise ValueError("algorithm.kind fedstar trains classifiers: set task.kind=classification")
        settings.client.check_plain("fedstar")

    def check(self, data: FederatedData) -> None:
        check_labelled(data, "algorithm.kind fedstar")

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        sent = super().broadcast(state, round)
        tau = self.settings.threshold.at(round, self.rounds)
        return replace(sent, settings={**sent.settings, "threshold": tau})

    def paced_by(self) -> str | None:
        return (
            "the threshold tau" if self.settings.threshold.first != self.settings.threshold.last else super().paced_by()
        )

    def client_train(self, client: Client, received: Received) -> Trained:
        data, beta, tau = client.data, self.settings.beta, received.settings["threshold"]
        weight_l = 1.0 if self.settings.weights == "paper" else 1.0 - beta
        local, theta_i = self.local_settings(received), self.local_model(received)
        optimizer, total, scores = ClientOptimizer(theta_i.flat, local), Mean(), LabelScores()
        labels, truth = self.labels(data), self.task.known(data)
        pairs = list(paired_batches(data, local, self.settings.labelled_batch, client.seed))
        with theta_i.training():
            for l, u in pairs[: theta_i.time_left(len(pairs))]:  # noqa: E741 - the paper's name
                batch = theta_i.augmented(collate(data, np.concatenate([l, u])))
                z_l, z_u = torch.split(theta_i.logits(batch), [len(l), len(u)])
                loss = z_l.new_zeros(())
                if len(l):
                    loss = cross_entropy(z_l, torch.from_numpy(labels[l]).to(theta_i.device))
                if len(u):
                    y_u, kept = pseudo_labels(z_u, self.settings.temperature, tau)
                    loss = weight_l * loss + beta * pseudo_loss(z_u, y_u, kept)
                    scores.add(y_u, kept, truth[u])
                total.add(theta_i.descend(loss, optimizer), len(batch))
        return trained(theta_i, data, Metrics(loss=total.pair()), scores=scores.metrics())

    def labels(self, data: Utterances) -> Positions:
        """The class number of each labelled clip, -1 for the others, [len(data)]."""
        labels, labelled = np.full(len(data), -1), data.labelled_positions
        labels[labelled] = self.task.targets(data.take(labelled))
        return labels


def pseudo_labels(logits: Tensor, temperature: float, threshold: float) -> tuple[Tensor, Tensor]:
    """argmax softmax(z / T) of each clip, int64 [batch], and whether its probability is above tau, bool [batch].

    z is [batch, classes]. Both results are constants: no gradient flows through them.
    """
    confidence, labels = softmax(logits.detach() / temperature, 1).max(1)
    return labels, confidence > threshold


def pseudo_loss(logits: Tensor, labels: Tensor, kept: Tensor) -> Tensor:
    """Cross-entropy with the kept pseudo-labels, a mean over the whole batch: the other clips count as 0."""
    losses = cross_entropy(logits, labels, reduction="none")
    return torch.where(kept, losses, torch.zeros_like(losses)).sum() / len(losses)


def paired_batches(
    data: Utterances, settings: ClientSettings, labelled_batch: int | None, seed: int
) -> Iterator[tuple[Positions, Positions]]:
    """Yield for each step the positions l of labelled and u of unlabelled clips, in `settings.epochs` passes over u.

    Labelled clips repeat: all in a random order, then all in another. Without unlabelled clips, each pass goes over the
    labelled ones.
    """
    generator = np.random.default_rng(seed)
    unlabelled, labelled = data.unlabelled, data.labelled_positions
    stream = _repeated(labelled, generator)
    for _ in range(settings.epochs):
        order = generator.permutation(unlabelled if len(unlabelled) else labelled)
        for start in range(0, len(order), settings.batch):
            part = order[start : start + settings.batch]
            if len(unlabelled):
                wanted = range(labelled_batch or min(len(part), len(labelled)))
                yield np.fromiter((position for _, position in zip(wanted, stream, strict=False)), np.int64), part
            else:
                yield part, part[:0]


def _repeated(positions: Positions, generator: np.random.Generator) -> Iterator[int]:
    while len(positions):
        yield from generator.permutation(positions).tolist()


class LabelScores:
    """Counts `labels_kept`, percent of all pseudo-labels, and `label_accuracy`, percent of kept ones with known truth.

    Training never uses the truth; a simulation knows it.
    """

    def __init__(self) -> None:
        self._made = self._kept = self._known = self._right = 0

    def add(self, labels: Tensor, kept: Tensor, truth: Positions) -> None:
        """Add the pseudo-labels of a batch. `truth`: class numbers, -1 where unknown, [batch]."""
        chosen, answers = kept.cpu().numpy(), labels.cpu().numpy()
        known = chosen & (truth >= 0)
        self._made += len(answers)
        self._kept += int(chosen.sum())
        self._known += int(known.sum())
        self._right += int((answers == truth)[known].sum())

    def metrics(self) -> Metrics:
        """Both scores, in percent."""
        return Metrics(labels_kept=(100.0 * self._kept, self._made), label_accuracy=(100.0 * self._right, self._known))
