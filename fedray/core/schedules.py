"""Schedules of the learning rate over the rounds t = 0 .. rounds - 1. The rate is constant within a round."""

from __future__ import annotations

import math
import sys
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

from fedray.core.ranges import Positive, Ranged, Share


class Schedule(Ranged, ABC):
    """A factor on the initial learning rate for each round."""

    @abstractmethod
    def factor(self, round: int, rounds: int) -> float:
        """The factor on the initial learning rate in round t of `rounds`."""

    def check(self, rounds: int) -> None:
        """Raise ValueError if the learning rate of the last round would be 0 or infinite. A schedule may also warn."""
        try:
            last = self.factor(rounds - 1, rounds)
        except OverflowError:
            last = math.inf
        if not sys.float_info.min <= last <= sys.float_info.max:
            raise ValueError(
                f"algorithm.schedule: the learning rate of round {rounds} would be {'0' if last < 1 else 'infinite'}: "
                "raise decay_steps, or choose another schedule"
            )


@dataclass(frozen=True)
class Constant(Schedule):
    """The initial learning rate in all rounds."""

    def factor(self, round: int, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Exponential(Schedule):
    """mu^(t / lambda), with mu = `decay_rate` and lambda = `decay_steps` in rounds (FedNST, section 4).

    The paper does not give mu: 0.5 is ours.
    """

    decay_rate: Positive = 0.5  # mu, the factor after `decay_steps` rounds
    decay_steps: Positive = 1000.0  # lambda, in rounds

    def factor(self, round: int, rounds: int) -> float:
        return float(self.decay_rate ** (round / self.decay_steps))


@dataclass(frozen=True)
class Cumulative(Schedule):
    """eta_t = eta_{t-1} mu^(t / lambda), as in FedNST's algorithm 1. In closed form mu^(t (t + 1) / (2 lambda))."""

    decay_rate: Positive = 0.5  # mu of the formula
    decay_steps: Positive = 1000.0  # lambda, in rounds

    def factor(self, round: int, rounds: int) -> float:
        return float(self.decay_rate ** (round * (round + 1) / (2 * self.decay_steps)))

    def check(self, rounds: int) -> None:
        super().check(rounds)
        last = math.log10(self.decay_rate) * (rounds - 1) * rounds / (2 * self.decay_steps)
        if last < -6:
            shrinks = f"schedule cumulative: the learning rate ends at 1e{last:.0f} of its start"
            warnings.warn(f"{shrinks}; raise decay_steps or use exponential", stacklevel=2)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine, from 1 to `floor`."""

    floor: Share = 0.0  # share of the initial rate that the last round approaches

    def factor(self, round: int, rounds: int) -> float:
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * round / rounds))


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "exponential": Exponential,
    "cumulative": Cumulative,
    "cosine": Cosine,
}
