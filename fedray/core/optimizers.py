"""Server optimisers: theta <- theta + step(Delta), Delta the aggregated change (Reddi et al., Adaptive Federated Optimization, ICLR 2021).

They step on trainable parameters alone. What lies behind them in the vector (float buffers such as running means) takes Delta as it is:
a momentum of a variance means nothing and can turn negative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedray.core.types import ServerState, State, Vector


class ServerOptimizer(ABC):
    """Frozen settings; moments live in the server state under "optimizer"."""

    lr: float

    @abstractmethod
    def step(self, delta: Vector, moments: State) -> tuple[Vector, dict[str, Any]]:
        """What to add to the parameters, and the new moments. `delta` [trainable], moments {} at first."""

    def apply(self, state: ServerState, delta: Vector, trainable: int) -> ServerState:
        """theta_{t+1} from theta_t and Delta. `delta` covers the trainable part, or all of the vector when buffers are averaged too."""
        step, moments = self.step(delta[:trainable], state.extra.get("optimizer", {}))
        params = state.params.copy()
        params[:trainable] += step
        params[trainable : delta.shape[0]] += delta[trainable:]
        return ServerState(params, {**state.extra, "optimizer": moments})


@dataclass(frozen=True)
class SGD(ServerOptimizer):
    """FedAvg at lr 1."""

    lr: float = 1.0

    def step(self, delta: Vector, moments: State) -> tuple[Vector, dict[str, Any]]:
        return np.float32(self.lr) * delta, {}


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """FedAvgM (Hsu et al., 2019): m <- beta m + Delta."""

    lr: float = 1.0
    beta: float = 0.9

    def step(self, delta: Vector, moments: State) -> tuple[Vector, dict[str, Any]]:
        m = np.float32(self.beta) * moments.get("m", np.zeros_like(delta)) + delta
        return np.float32(self.lr) * m, {"m": m}


@dataclass(frozen=True)
class Adaptive(ServerOptimizer):
    """m <- beta1 m + (1 - beta1) Delta; theta <- theta + lr m / (sqrt(v) + tau); no bias correction, v_{-1} = tau^2, as in the paper."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    @abstractmethod
    def second(self, v: Vector, square: Vector) -> Vector:
        """v_t from v_{t-1} and Delta^2."""

    def step(self, delta: Vector, moments: State) -> tuple[Vector, dict[str, Any]]:
        m = np.float32(self.beta1) * moments.get("m", np.zeros_like(delta)) + np.float32(1 - self.beta1) * delta
        v = self.second(moments.get("v", np.full_like(delta, self.tau**2)), delta * delta)
        return np.float32(self.lr) * m / (np.sqrt(v) + np.float32(self.tau)), {"m": m, "v": v}


@dataclass(frozen=True)
class Adam(Adaptive):
    def second(self, v: Vector, square: Vector) -> Vector:
        return np.float32(self.beta2) * v + np.float32(1 - self.beta2) * square


@dataclass(frozen=True)
class Yogi(Adaptive):
    def second(self, v: Vector, square: Vector) -> Vector:
        smaller: Vector = v - np.float32(1 - self.beta2) * square * np.sign(v - square)
        return smaller


@dataclass(frozen=True)
class Adagrad(Adaptive):
    beta1: float = 0.0

    def second(self, v: Vector, square: Vector) -> Vector:
        return v + square


SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {"sgd": SGD, "momentum": Momentum, "adam": Adam, "yogi": Yogi, "adagrad": Adagrad}
