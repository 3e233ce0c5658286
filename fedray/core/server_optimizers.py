"""Server optimisers: theta <- theta + step(Delta), where Delta is the aggregated update.

Reddi et al. Adaptive Federated Optimization. ICLR 2021.

A step changes trainable parameters alone. Float buffers, such as running means, come after them in the vector and get
Delta unchanged: a momentum of a variance has no meaning, and the result can be negative.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedray.core.ranges import Amount, Part, Positive, Ranged
from fedray.core.types import Layer, ServerState, State, Vector


class ServerOptimizer(Ranged, ABC):
    """The settings of a server optimiser. Its moments are in the server state, under "optimizer"."""

    lr: float

    @abstractmethod
    def step(self, delta: Vector, moments: State) -> tuple[Vector, dict[str, Vector]]:
        """The change of the parameters [trainable], and the new moments.

        `delta`: the aggregated update [trainable]. `moments`: those of the last round; {} in the first.
        """

    def scale(self, step: Vector, params: Vector, layers: Sequence[Layer]) -> Vector:
        """The step that is added to the parameters; layer-wise optimisers scale it. Both vectors are [trainable]."""
        return step

    def apply(self, state: ServerState, delta: Vector, trainable: int, layers: Sequence[Layer] = ()) -> ServerState:
        """Compute theta_{t+1} from theta_t and Delta.

        `delta` has the trainable parameters, followed by the buffers if clients' buffers are averaged too.
        `trainable`: the number of trainable parameters. `layers`: stretches that cover them; () is one layer.
        """
        step, moments = self.step(delta[:trainable], state.extra.get("optimizer", {}))
        step = self.scale(step, state.params[:trainable], layers)
        params = state.params.copy()
        params[:trainable] += step
        params[trainable : delta.shape[0]] += delta[trainable:]
        return ServerState(params, {**state.extra, "optimizer": moments})


@dataclass(frozen=True)
class SGD(ServerOptimizer):
    """theta <- theta + lr Delta: FedAvg for lr 1."""

    lr: Amount = 1.0  # ServerOpt's learning rate; 1 adds the clients' mean update as it is

    def step(self, delta: Vector, moments: State) -> tuple[Vector, dict[str, Vector]]:
        return delta if self.lr == 1 else np.float32(self.lr) * delta, {}


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """FedAvgM (Hsu et al., 2019): m <- beta m + Delta; theta <- theta + lr m."""

    lr: Amount = 1.0  # ServerOpt's learning rate
    beta: Part = 0.9  # share of the momentum m that a round keeps

    def step(self, delta: Vector, moments: State) -> tuple[Vector, dict[str, Vector]]:
        m = np.float32(self.beta) * moments.get("m", np.zeros_like(delta)) + delta
        return np.float32(self.lr) * m, {"m": m}


@dataclass(frozen=True)
class Adaptive(ServerOptimizer):
    """m <- beta1 m + (1 - beta1) Delta; theta <- theta + lr m / (sqrt(v) + tau).

    As in the paper, v_{-1} = tau^2 and there is no bias correction.
    """

    lr: Amount = 0.01  # ServerOpt's learning rate
    beta1: Part = 0.9  # share of the first moment m that a round keeps
    beta2: Part = 0.99  # share of the second moment v that a round keeps (adagrad: has no effect)
    tau: Positive = 1e-3  # added to sqrt(v): larger values make steps less adaptive

    @abstractmethod
    def second(self, v: Vector, square: Vector) -> Vector:
        """v_t from v_{t-1} and Delta^2."""

    def step(self, delta: Vector, moments: State) -> tuple[Vector, dict[str, Vector]]:
        m = np.float32(self.beta1) * moments.get("m", np.zeros_like(delta)) + np.float32(1 - self.beta1) * delta
        v = self.second(moments.get("v", np.full_like(delta, self.tau**2)), delta * delta)
        return np.float32(self.lr) * m / (np.sqrt(v) + np.float32(self.tau)), {"m": m, "v": v}


@dataclass(frozen=True)
class Adam(Adaptive):
    """FedAdam: v <- beta2 v + (1 - beta2) Delta^2."""

    def second(self, v: Vector, square: Vector) -> Vector:
        return np.float32(self.beta2) * v + np.float32(1 - self.beta2) * square


@dataclass(frozen=True)
class Yogi(Adaptive):
    """FedYogi: v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)."""

    def second(self, v: Vector, square: Vector) -> Vector:
        smaller: Vector = v - np.float32(1 - self.beta2) * square * np.sign(v - square)
        return smaller


@dataclass(frozen=True)
class Adagrad(Adaptive):
    """FedAdagrad: v <- v + Delta^2."""

    beta1: Part = 0.0  # share of the first moment m that a round keeps

    def second(self, v: Vector, square: Vector) -> Vector:
        return v + square


@dataclass(frozen=True)
class LAMB(ServerOptimizer):
    """Adam with each layer's step scaled to lr times the norm of the layer's parameters (You et al., ICLR 2020).

    A layer whose parameters or step are all zero takes lr times Adam's step. Bias is corrected, as in the paper.
    """

    lr: Amount = 0.01  # ServerOpt's learning rate: the length of a layer's step, as a share of the layer's norm
    beta1: Part = 0.9  # share of the first moment m that a round keeps
    beta2: Part = 0.999  # share of the second moment v that a round keeps
    tau: Positive = 1e-6  # added to sqrt(v)
    decay: Amount = 0.0  # weight decay: the share of the parameters that a step subtracts, before its length is set

    def step(self, delta: Vector, moments: State) -> tuple[Vector, dict[str, Vector]]:
        zeros = np.zeros_like(delta)
        rounds = moments.get("rounds", np.zeros(1, np.float32)) + np.float32(1)
        m = np.float32(self.beta1) * moments.get("m", zeros) + np.float32(1 - self.beta1) * delta
        v = np.float32(self.beta2) * moments.get("v", zeros) + np.float32(1 - self.beta2) * (delta * delta)
        first, second = (np.float32(1 - beta ** float(rounds[0])) for beta in (self.beta1, self.beta2))
        return m / first / (np.sqrt(v / second) + np.float32(self.tau)), {"m": m, "v": v, "rounds": rounds}

    def scale(self, step: Vector, params: Vector, layers: Sequence[Layer]) -> Vector:
        step = step - np.float32(self.decay) * params
        stretches: dict[str, list[slice]] = {}
        for layer in layers or (Layer("all", 0, step.size),):
            if layer.start < min(layer.stop, step.size):
                stretches.setdefault(layer.name, []).append(slice(layer.start, layer.stop))
        for layer_stretches in stretches.values():
            ours, wanted = (_norm([vector[one] for one in layer_stretches]) for vector in (step, params))
            ratio = np.float32(self.lr * (wanted / ours if ours and wanted else 1.0))
            for one in layer_stretches:
                step[one] *= ratio
        return step


def _norm(parts: Sequence[Vector]) -> float:
    """The Euclidean norm of all parts together, the same in any order of the parts."""
    return math.sqrt(math.fsum(float(np.square(part, dtype=np.float64).sum()) for part in parts))


SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "yogi": Yogi,
    "adagrad": Adagrad,
    "lamb": LAMB,
}
