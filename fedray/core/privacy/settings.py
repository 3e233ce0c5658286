"""The section `privacy` of a configuration: differential privacy for clients.

Two federations are neighbours if one of them has one client more; with drawn cohorts of fixed size and with Skellam
noise, if one client is replaced by another. The models of all rounds are released, and so covered. Metrics, tables of
clients and scores of personal models are not covered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from fedray.core.privacy.secure_aggregation import SecureAggregation
from fedray.core.ranges import Amount, Count, Fraction, Part, Positive, Range, Ranged, one_of


@dataclass(frozen=True)
class ClipSettings(Ranged):
    """The bound C on the Euclidean norm of each client's update. An update with a larger norm is scaled down.

    `layers` splits C into a bound for each of the model's H layers, of d_h numbers; the bounds' squares sum to C^2.
    """

    # fixed | adaptive: bounds follow a quantile of the clients' norms (Andrew et al., 2021)
    kind: str = one_of(("fixed", "adaptive"))
    norm: Positive = 1.0  # C; adaptive: the bound in the first round
    # global: one bound for the whole update | uniform: C / sqrt(H) | dim: C sqrt(d_h / sum d)
    layers: str = one_of(("global", "uniform", "dim"))
    quantile: Fraction = 0.5  # adaptive: the share of clients whose updates are not clipped
    step: Positive = 0.2  # adaptive: the learning rate of the logarithm of a bound
    count_noise: Positive | None = None  # adaptive: deviation of the noise in a count, in clients; null: cohort / 20


@dataclass(frozen=True)
class AsIfSettings(Ranged):
    """A larger federation that the simulation stands for: the simulated mean gets the noise of the larger cohort's."""

    cohort: Count | None = None  # clients of a round; null: as simulated
    population: Count | None = None  # clients of the federation; null: as simulated

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.cohort is None) != (self.population is None):
            raise ValueError("as_if needs both cohort and population, or neither")
        if self.cohort is not None and self.population is not None and self.cohort > self.population:
            raise ValueError(f"as_if.cohort is {self.cohort:,}, more than as_if.population, {self.population:,}")


@dataclass(frozen=True)
class NoPrivacy:
    """This section neither clips updates nor adds noise."""


@dataclass(frozen=True)
class Private(Ranged):
    """What all kinds of privacy share: the guarantee, or the noise that gives it, and the bound of an update."""

    samplings: ClassVar[tuple[str, ...]] = ("poisson", "uniform")  # kinds of `cohort.sampling` that have an account
    adapts: ClassVar[bool] = True  # whether bounds may be adaptive

    delta: Fraction  # the probability that epsilon does not hold; below 1 / population
    epsilon: Positive | None = None  # epsilon of the whole run; the noise follows from it. Set this or `noise`
    noise: Amount | None = None  # z: standard deviation of the noise in the sum of updates, as a multiple of the bound
    clip: ClipSettings = field(default_factory=ClipSettings)  # the bound of a client's update
    as_if: AsIfSettings = field(default_factory=AsIfSettings)  # a larger federation that the simulation stands for

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon is None and self.noise is None:
            raise ValueError("set epsilon (the guarantee) or noise (the multiplier z): both are null")
        if self.epsilon is not None and self.noise is not None:
            raise ValueError(
                "epsilon (the guarantee) and noise (the multiplier z) are both set: unset one, with epsilon=null or "
                "noise=null"
            )
        if self.clip.kind == "adaptive" and not self.adapts:
            raise ValueError("clip.kind=adaptive cannot be used here: the noise is scaled to one bound for all rounds")


@dataclass(frozen=True)
class Gaussian(Private):
    """Central: the server adds Gaussian noise to the sum of clipped updates (McMahan et al., ICLR 2018)."""


@dataclass(frozen=True)
class Correlated(Private):
    """Central, with noise that partly cancels over rounds: a banded inverse factorisation (arXiv 2505.12128).

    The noise of round t is the sum of w_j z_(t-j) over j < `bands`. The guarantee takes no credit for sampling.
    """

    samplings: ClassVar[tuple[str, ...]] = ("cyclic",)
    adapts: ClassVar[bool] = False

    bands: Count = 20  # rounds whose draws add up to a round's noise


@dataclass(frozen=True)
class Local(Private):
    """Each client adds its own noise and need not trust anyone; epsilon covers all updates of one client together.

    The simulation draws the clients' noise as one sum, whose distribution is the same.
    """

    samplings: ClassVar[tuple[str, ...]] = ("poisson", "uniform", "weighted", "cyclic")
    adapts: ClassVar[bool] = False


@dataclass(frozen=True)
class Skellam(Private):
    """Distributed: clients send whole numbers with a share of Skellam noise, and the server sees only the sum.

    Agarwal, Kairouz, Liu. The Skellam Mechanism for Differentially Private Federated Learning. NeurIPS 2021. The sum is
    modular, as under secure aggregation (Bonawitz et al., CCS 2017). The scale of the whole numbers reveals how
    many clients take part, so cohorts have a fixed size.
    """

    samplings: ClassVar[tuple[str, ...]] = ("uniform",)
    adapts: ClassVar[bool] = False

    bits: Annotated[int, Range(2, 32)] = 16  # bits of each number that travels, and of the modular sum
    deviations: Positive = 4.0  # standard deviations of the sum that fit into `bits` before it wraps around
    neighbours: Count = 100  # clients with whom a client shares keys (Bell et al., CCS 2020)
    threshold: Part = 0.5  # share of the holders of a client's keys that must answer, or the sum cannot be opened

    def secure(self, cohort: int) -> SecureAggregation:
        """The secure aggregation of a round of `cohort` clients."""
        return SecureAggregation(cohort, self.neighbours, self.threshold)


PRIVACY: dict[str, type] = {
    "none": NoPrivacy,
    "gaussian": Gaussian,
    "correlated": Correlated,
    "local": Local,
    "skellam": Skellam,
}
