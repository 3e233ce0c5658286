"""Code that the papers share: seed model, round's learning rate, local model, server's pass, ServerOpt, scores.

A new algorithm derives from `FederatedSGD` and implements `client_train`; `scaffold.py` is a short example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fedray.core.algorithm import Algorithm, Parts
from fedray.core.metrics import Metrics
from fedray.core.privacy.likeness import Reconstruction
from fedray.core.ranges import Ranged, Share, one_of
from fedray.core.schedules import SCHEDULES
from fedray.core.settings import kinds
from fedray.core.types import (
    Broadcast,
    Change,
    Client,
    Evaluation,
    FederatedData,
    Layer,
    Received,
    Server,
    ServerState,
    State,
    Update,
    Vector,
)
from fedray.data.features.dataset import Utterances
from fedray.training import together
from fedray.training.inversion import reconstruct
from fedray.training.local import LocalModel
from fedray.training.optimizers import ClientSettings, PretrainSettings
from fedray.training.personal import composed, kept
from fedray.training.seed_model import Gradient, Shard, seed_model, shard_gradient
from fedray.training.server_pass import ServerPassSettings, labelled_data, server_pass
from fedray.training.task import Task


@dataclass(frozen=True)
class TaskSettings(Ranged):
    """Settings of every algorithm that trains a task."""

    pretrain: PretrainSettings = field(default_factory=PretrainSettings)  # training of the seed model
    # Patterns of names that stay with each client, such as "out.*", head (last layers) or norms; see `fedray model`.
    personal: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SGDSettings(TaskSettings):
    """Settings of the algorithms whose clients train the broadcast model."""

    schedule: Any = kinds(SCHEDULES, "constant")  # schedule of the clients' learning rate
    client: ClientSettings = field(default_factory=ClientSettings)
    buffers: str = one_of(("averaged", "frozen"))  # running statistics of batch norm: averaged | frozen


@dataclass(frozen=True)
class ServerSGDSettings(SGDSettings):
    """Settings of the algorithms whose server trains too."""

    server: ServerPassSettings = field(default_factory=ServerPassSettings)
    server_scheduled: bool = False  # eta_S follows `schedule`, as the clients' rate does; false: constant

    def server_factor(self, round: int, rounds: int) -> float:
        """The factor of eta_S in a round."""
        return float(self.schedule.factor(round, rounds)) if self.server_scheduled else 1.0


@dataclass(frozen=True)
class MixedSettings(ServerSGDSettings):
    """Settings of the algorithms whose server trains alongside the clients."""

    alpha: Share = 0.0  # the server's share of a round's change


@dataclass(frozen=True)
class Trained:
    """A trained client: its model and the update that it sends.

    `own`: the personal part that the client keeps; None: that of `model`.
    """

    model: LocalModel
    update: Update
    own: Vector | None = None


class TaskAlgorithm(Algorithm):
    """An algorithm that starts from the task's seed model and leaves scoring and export to the task. Abstract."""

    settings: TaskSettings
    task: Task
    init_name = "seed model"

    def __init__(self, settings: TaskSettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        if patterns := self.personal_patterns():
            self.task = parts.task.with_personal(patterns)

    def personal_patterns(self) -> Sequence[str]:
        """The patterns of the names of what stays with each client."""
        return self.settings.personal

    @abstractmethod
    def client_train(self, client: Client, received: Received) -> Trained:
        """Train on one client, whose personal part is in `received.params`."""

    def client_update(self, client: Client, received: Received) -> Update:
        client, received = composed(self.task.layout, client, replace(received, work=client.work))
        done = self.client_train(client, received)
        if not isinstance(done, Trained):
            raise TypeError(
                f"{type(self).__name__}.client_train returned {type(done).__name__}, not Trained: end it with "
                "`return trained(model, client.data, losses)`"
            )
        if not self.task.personal:
            return done.update
        own = done.model.own() if done.own is None else done.own
        return replace(done.update, state=kept(done.update.state, client.state, own))

    def lane_update(self, clients: Iterator[Client], received: Received) -> Iterator[Update | Exception]:
        if received.together == 1:
            return super().lane_update(clients, received)
        return together.train(clients, received.together, lambda client: self.client_update(client, received))

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.server_step(state, mixed(change, 0.0))

    def server_step(self, state: ServerState, delta: Vector) -> ServerState:
        """theta_{t+1} = ServerOpt(theta_t, Delta) for the trainable parameters; averaged buffers add Delta as it is."""
        if not delta.ndim:  # no client answered, and the server trained nothing
            return state
        return self.server_optimizer.apply(state, delta, self.task.layout.trainable, self.layers())

    @property
    def seed_task(self) -> Task:
        """The task that the seed model is trained on."""
        return self.task

    @property
    def init_depends(self) -> tuple[str, ...]:  # type: ignore[override]
        """The configuration keys that the seed model depends on, besides the server's data."""
        return ("seed", "features", "model", "kernels", "algorithm.pretrain", *self.seed_task.init_depends)

    def init(self, server: Server) -> ServerState:
        return seed_model(self.seed_task, server, self.settings.pretrain)

    def init_part(self, server: Server, params: Vector, part: Shard) -> Gradient:
        return shard_gradient(self.seed_task, server, params, part)

    @property
    def constant(self) -> int:
        """How many values at the vector's end no round changes: what is frozen, and the initial personal part."""
        layout = self.task.layout
        return layout.size - (layout.trainable if getattr(self.settings, "buffers", "") == "frozen" else layout.moving)

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params, constant=self.constant)

    @property
    def best(self) -> tuple[str, str]:  # type: ignore[override]
        return self.task.best

    @property
    def signatures(self) -> Mapping[str, str]:
        return self.task.signatures

    def layers(self) -> tuple[Layer, ...]:
        """One layer for each module's parameters, and another for its float buffers, elsewhere in the vector."""
        layout = self.task.layout
        modules = groupby(
            layout.entries, lambda entry: (entry.start >= layout.trainable, entry.name.rpartition(".")[0])
        )
        stretches = [(name, list(entries)) for (_, name), entries in modules]
        return tuple(Layer(name, entries[0].start, entries[-1].stop) for name, entries in stretches)

    def tensors(self) -> tuple[int, ...]:
        return self.task.layout.tensors

    def assets(self, data: FederatedData) -> Mapping[str, Any]:
        return self.task.assets()

    def evaluate(self, data: Any, received: Received, final: bool) -> Evaluation:
        return self.task.evaluate(received.params, data, received.assets, received.device, final)

    def losses(self, data: Any, received: Received) -> Sequence[float]:
        return self.task.losses(received.params, data, received.device)

    def reconstruct(
        self, data: Any, update: Vector, received: Received, steps: int, rate: float
    ) -> Sequence[Reconstruction]:
        return reconstruct(self.task, data, update, received, steps, rate)

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, Any], final: bool
    ) -> Mapping[str, Evaluation]:
        """Score the global model with the client's personal part.

        If nothing is personal, score it after the client has trained it once more, with the state it now has [ours].
        """
        client, received = composed(self.task.layout, client, received)
        params = received.params if self.task.personal else self.client_train(client, received).model.params()
        return personal_scores(self.task, params, received, data, final)

    def export(self, state: ServerState, folder: Path) -> None:
        self.task.export(state.params, folder)


class FederatedSGD(TaskAlgorithm):
    """Clients train the broadcast model at the round's learning rate. Abstract."""

    settings: SGDSettings

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        """Send theta_t and eta_C^t, the clients' learning rate, which is constant within the round."""
        rate = self.settings.client.lr * self.settings.schedule.factor(round, self.rounds)
        return Broadcast(state.params, {"lr/client": rate}, self.constant)

    def paced_by(self) -> str | None:
        factor = self.settings.schedule.factor
        return "the schedule of the learning rate" if factor(1, 10) != factor(1, 20) else None

    def local_settings(self, received: Received) -> ClientSettings:
        """The settings of local training, with the round's learning rate."""
        return replace(self.settings.client, lr=received.settings["lr/client"])

    def local_model(self, received: Received) -> LocalModel:
        """theta_i before training: theta_t on this device."""
        frozen, work = self.settings.buffers == "frozen", received.work
        return LocalModel(self.task, received.params, received.device, frozen, work)


class MixedSGD(FederatedSGD):
    """The server trains too: Delta = alpha Delta_S + (1 - alpha) Delta_C. Abstract."""

    settings: MixedSettings

    def check(self, data: FederatedData) -> None:
        if self._server_trains:
            labelled_data(data.server())

    def server_train(self, server: Server, received: Received) -> Update | None:
        if not self._server_trains:
            return None
        frozen, factor = self.settings.buffers == "frozen", self.settings.server_factor(received.round, self.rounds)
        return server_pass(self.task, server, received, self.settings.server, frozen, factor)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.server_step(state, mixed(change, self.settings.alpha))

    @property
    def _server_trains(self) -> bool:
        """Whether the server trains: alpha is above 0, or the strategy compares clients with its pass."""
        return self.settings.alpha > 0 or getattr(self.strategy, "against", "") == "server"


def trained(
    model: LocalModel,
    data: Utterances,
    losses: Metrics,
    *,
    scores: Metrics | None = None,
    report: Mapping[str, float] | None = None,
    state: State | None = None,
) -> Trained:
    """The model with its update: Delta_i and, for the strategy, n_i, the mean training loss and `report`.

    `losses` holds `loss`; `unlearnable`, a share of n_i, does not count in it. `scores` are further metrics:
    Metrics(norm=(sum, count)) logs `train/norm`. `state` replaces the client's state (None: the old one stays). The
    metric `steps` is the number of gradient steps that the model has taken.
    """
    if not isinstance(scores, Metrics | None):
        raise TypeError(f"trained: scores is Metrics(name=(sum, count)), not {type(scores).__name__}")
    lost = round(losses.get("unlearnable", 0.0) * len(data)) if len(data) else 0
    scalars = {"examples": len(data) - lost, "loss": losses["loss"], **(report or {})}
    metrics = losses + Metrics(steps=(model.steps, 1)) + (scores or Metrics())
    return Trained(model, Update(model.delta(), scalars, metrics, state))


def personal_scores(
    task: Task, params: Vector, received: Received, data: Mapping[str, Any], final: bool
) -> dict[str, Evaluation]:
    """Score a personal model on each of these data sets by the task's metrics."""
    return {split: task.evaluate(params, part, received.assets, received.device, final) for split, part in data.items()}


def mixed(change: Change, alpha: float) -> Vector:
    """Delta = alpha Delta_S + (1 - alpha) Delta_C; a missing part counts as no change."""
    weighted = (alpha, change.server), (1 - alpha, change.clients)
    parts = [np.float32(share) * part for share, part in weighted if part is not None]
    return np.asarray(sum(parts), dtype=np.float32)
