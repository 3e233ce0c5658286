"""FedMLAC: every client keeps a personal model that learns with a small plug-in; only the plug-in travels.

FedMLAC: Mutual Learning Driven Heterogeneous Federated Audio Classification. 2025.

    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            w_i <- its personal model (drawn at its first round: one of `sizes`), v_i <- theta_t, the plug-in
            for each batch (x, y) of E epochs:
                w_i <- w_i - eta_C grad[ CE(w_i(x), y) + lambda_w KL(v_i(x) || w_i(x)) ]    # the teacher is a constant
                v_i <- v_i - eta_C grad[ CE(v_i(x), y) + lambda_v KL(w_i(x) || v_i(x)) ]    # outputs before either step
            keep w_i; Delta_i <- v_i - theta_t
        for each layer l of the plug-in:                                    # LPA: strategy layerwise_pruning
            T_l     <- S_t without the r largest and r smallest ||Delta_i^l - mean_j Delta_j^l||_2
            Delta^l <- sum_{i in T_l} n_i / n_{T_l}  Delta_i^l
        theta_{t+1} <- ServerOpt(theta_t, -Delta, eta)

The score is the mean over the personal models w_i on common data (`evaluation.personal_every`, `personal_final`), or on
the clips that each client holds out (`data.own_share`); `also_score` adds the scores of the plug-in v_i after the
client's training, and of the mean of both models' logits. The first w_i is random on each client, or the same on all
(`common`, `init`) [ours].
Ablations: with mutual weights of 0 both models train alone; strategy by_examples is FedMLAC without LPA; FedAvg with
layerwise_pruning has one shared model instead of two.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, personal_scores, trained
from fedray.core.algorithm import Parts, Setup
from fedray.core.metrics import Metrics
from fedray.core.ranges import Amount, Positive, Ranged, one_of
from fedray.core.seeds import derive
from fedray.core.types import Client, Evaluation, FederatedData, Received, State
from fedray.data.features.dataset import Batch
from fedray.training.classification import Classification
from fedray.training.local import LocalModel
from fedray.training.means import Mean
from fedray.training.optimizers import ClientOptimizer, ClientSettings
from fedray.training.personal import composed
from fedray.training.task import Targets

SCORES = ("plugin", "both")


@dataclass(frozen=True)
class MutualSettings(Ranged):
    """How the personal model and the plug-in learn from each other."""

    # lambda_w, weight of KL(plug-in || personal); 0: the personal model learns from labels alone
    personal: Amount = 1.0
    plugin: Amount = 1.0  # lambda_v, weight of KL(personal || plug-in)
    temperature: Positive = 1.0  # temperature of both models' softmax in the two KL terms
    # together: both predict before either steps | personal_first: v learns from the updated w
    order: str = one_of(("together", "personal_first"))


@dataclass(frozen=True)
class FedMLACSettings(SGDSettings):
    """Settings of FedMLAC."""

    # sizes of the personal models, values of model.size or, for an encoder, of model.layers; from several, each client
    # draws one
    sizes: list[str] = field(default_factory=lambda: ["base"])
    mutual: MutualSettings = field(default_factory=MutualSettings)
    common: bool = False  # all personal models of a size start from the same random weights
    init: str | None = None  # a file with the weights that all personal models start from; for a single size
    # Personal scores besides w_i's: plugin (of v_i after the client's training, which is repeated for this) | both (of
    # the mean of the logits of w_i and this v_i).
    also_score: list[str] = field(default_factory=list)
    client: ClientSettings = field(default_factory=lambda: ClientSettings(lr=0.01, batch=16))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sizes:
            raise ValueError("sizes names the sizes of the personal models: one or more")
        if self.init is not None and (len(set(self.sizes)) > 1 or self.common):
            raise ValueError("init holds the weights of one size: set a single size, and common=false")
        if unknown := set(self.also_score) - set(SCORES):
            raise ValueError(f"also_score holds {' and '.join(SCORES)}, not {min(unknown)!r}")


class FedMLAC(FederatedSGD):
    """A client's state holds the size and the parameters of its personal model w_i."""

    Settings = FedMLACSettings
    settings: FedMLACSettings
    task: Classification  # of the plug-in
    prepare_reads = False
    files = ("init",)

    @classmethod
    def check_setup(cls, settings: FedMLACSettings, setup: Setup) -> None:
        settings.client.check_plain("fedmlac")
        key = size_key(setup.model)
        if not issubclass(setup.task_class, Classification) or not hasattr(setup.model, key):
            raise ValueError(
                "fedmlac trains classifiers of several sizes: set task.kind=classification and model.kind=crnn or "
                "encoder"
            )
        for size in settings.sizes:
            try:
                replace(setup.model, **{key: size})
            except ValueError as error:
                raise ValueError(f"algorithm.sizes: {error}") from error

    def __init__(self, settings: FedMLACSettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        plugin = self.task.model_settings
        self.personal = {  # the personal models' tasks, by size
            size: self.task.with_model(replace(plugin, **{size_key(plugin): size, "init": settings.init}))
            for size in dict.fromkeys(settings.sizes)
        }

    def check(self, data: FederatedData) -> None:
        if self.settings.init is None:
            return
        try:
            self.personal[self.settings.sizes[0]].initial()
        except ValueError as error:
            raise ValueError(f"algorithm.init: {error}") from error

    def passes(self) -> float:
        return 2 * super().passes()  # two models are trained

    def client_prepare(self, client: Client, received: Received) -> State:
        size = self.settings.sizes[np.random.randint(len(self.settings.sizes))]
        if self.settings.common:
            # theta_0 seeds the same draw on all clients. It follows from the run's seed, unless `model.init` is set.
            torch.manual_seed(derive(zlib.crc32(received.params.tobytes()), "personal", size))
        return {"size": size, "params": self.personal[size].initial()}

    def client_train(self, client: Client, received: Received) -> Trained:
        assert client.state is not None
        size, data, local, mutual = (
            client.state["size"],
            client.data,
            self.local_settings(received),
            self.settings.mutual,
        )
        w = LocalModel(self.personal[size], client.state["params"], received.device)
        v = self.local_model(received)
        steps_w, loss_w = ClientOptimizer(w.flat, local), Mean()

        def mutual_step(v: LocalModel, x: Batch, y: Targets) -> Tensor:
            """The loss of v, after a step of w."""
            classes = torch.from_numpy(y).to(v.device)
            z_v, z_w = v.logits(x), w.logits(x)
            loss = mutual_loss(z_w, z_v, classes, mutual.personal, mutual.temperature)
            loss_w.add(w.descend(loss, steps_w), len(x))
            if mutual.order == "personal_first":
                z_w = w.logits(x)
            return mutual_loss(z_v, z_w, classes, mutual.plugin, mutual.temperature)

        with w.training():
            losses = v.fit(data, self.task.targets(data), local, client.seed, loss=mutual_step)
        losses += Metrics(personal_loss=loss_w.pair())
        return trained(v, data, losses, state={"size": size, "params": w.params()})

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, Any], final: bool
    ) -> Mapping[str, Evaluation]:
        """Score w_i, and the models of `also_score` as `plugin_accuracy`, `both_accuracy` and so on."""
        assert client.state is not None
        task, w = self.personal[client.state["size"]], client.state["params"]
        scores = personal_scores(task, w, received, data, final)
        if not self.settings.also_score:
            return scores
        v = self.client_train(*composed(self.task.layout, client, received)).model.params()
        for split, part in data.items():
            logits = {"plugin": self.task.logits(v, part, received.device)}
            logits["both"] = 0.5 * logits["plugin"] + 0.5 * task.logits(w, part, received.device)
            for name in self.settings.also_score:
                found = task.scored(part, logits[name], final=False).metrics.renamed(f"{name}_")
                scores[split] = replace(scores[split], metrics=scores[split].metrics + found)
        return scores


def size_key(model: Any) -> str:
    """The key of the model's settings that says its size: `size`, or the encoder's `layers`."""
    return getattr(model, "size_key", "size")


def mutual_loss(logits: Tensor, teacher: Tensor, classes: Tensor, weight: float, temperature: float) -> Tensor:
    """CE(logits, classes) + weight T^2 KL(softmax(teacher / T) || softmax(logits / T)), means over the batch.

    Logits are [batch, classes]; the teacher is a constant. Deep mutual learning: Zhang et al., CVPR 2018.
    """
    loss = cross_entropy(logits, classes)
    if not weight:
        return loss
    student, answers = log_softmax(logits / temperature, 1), log_softmax(teacher.detach() / temperature, 1)
    return loss + weight * temperature**2 * kl_div(student, answers, reduction="batchmean", log_target=True)
