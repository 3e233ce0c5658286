"""Learning rates over the rounds: constant within a round, round t = 0 .. rounds - 1."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

from fedray.core.config import positive


class Schedule(ABC):
    @abstractmethod
    def factor(self, round: int, rounds: int) -> float:
        """What the initial learning rate is multiplied with in round t of `rounds`."""

    def check(self, rounds: int) -> None:  # noqa: B027 - most have nothing to warn of
        """Warn when the schedule makes no sense over so many rounds."""


@dataclass(frozen=True)
class Constant(Schedule):
    def factor(self, round: int, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Exponential(Schedule):
    """mu^(t / lambda): `decay_rate` mu (the paper never gives it; 0.5 is ours), `decay_steps` lambda in rounds (FedNST, section 4)."""

    decay_rate: float = 0.5
    decay_steps: float = 1000.0

    def __post_init__(self) -> None:
        positive(decay_rate=self.decay_rate, decay_steps=self.decay_steps)

    def factor(self, round: int, rounds: int) -> float:
        return float(self.decay_rate ** (round / self.decay_steps))


@dataclass(frozen=True)
class Cumulative(Schedule):
    """eta_t = eta_{t-1} mu^(t / lambda), as FedNST's algorithm 1 prints it: mu^(t (t + 1) / (2 lambda)) in closed form."""

    decay_rate: float = 0.5
    decay_steps: float = 1000.0

    def __post_init__(self) -> None:
        positive(decay_rate=self.decay_rate, decay_steps=self.decay_steps)

    def factor(self, round: int, rounds: int) -> float:
        return float(self.decay_rate ** (round * (round + 1) / (2 * self.decay_steps)))

    def check(self, rounds: int) -> None:
        last = math.log10(self.decay_rate) * (rounds - 1) * rounds / (2 * self.decay_steps)
        if last < -6:
            text = f"schedule cumulative: the learning rate ends at 1e{last:.0f} of its start; raise decay_steps or use exponential"
            warnings.warn(text, stacklevel=2)


@dataclass(frozen=True)
class Cosine(Schedule):
    """From 1 down to `floor` on half a cosine."""

    floor: float = 0.0

    def factor(self, round: int, rounds: int) -> float:
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * round / rounds))


SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "exponential": Exponential, "cumulative": Cumulative, "cosine": Cosine}
