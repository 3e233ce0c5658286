"""How much an update that started from an old model counts: a factor on its delta, 1 for the newest model.

Xie, Koyejo, Gupta. Asynchronous Federated Optimization (FedAsync). arXiv 1903.03934, section 5.2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from fedray.core.ranges import Amount, Natural


class Staleness(ABC):
    """The factor s(tau) of an update that is tau steps behind. s(0) is 1 exactly."""

    @abstractmethod
    def factor(self, behind: int) -> float:
        """s(tau), from 0 to 1."""


@dataclass(frozen=True)
class ConstantStaleness(Staleness):
    """s = 1: old updates count like new ones."""

    def factor(self, behind: int) -> float:
        return 1.0


@dataclass(frozen=True)
class PolynomialStaleness(Staleness):
    """s = (1 + tau)^-a. FedBuff takes a = 1/2."""

    exponent: Amount = 0.5  # a

    def factor(self, behind: int) -> float:
        return float((1 + behind) ** -self.exponent)


@dataclass(frozen=True)
class HingeStaleness(Staleness):
    """s = 1 up to tau = b, and 1 / (a (tau - b) + 1) above."""

    slope: Amount = 10.0  # a
    above: Natural = 4  # b: an update up to so many steps behind counts in full

    def factor(self, behind: int) -> float:
        return 1.0 / (self.slope * max(0, behind - self.above) + 1.0)


STALENESS: dict[str, type[Staleness]] = {
    "polynomial": PolynomialStaleness,
    "hinge": HingeStaleness,
    "constant": ConstantStaleness,
}
