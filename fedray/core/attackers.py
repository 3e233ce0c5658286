"""The section `attack` of a configuration: some clients send, or train on, what harms the model.

A client's name and the run's seed decide whether it attacks, so a larger share includes all attackers of a smaller one.
What attackers send is clipped, encoded and summed like every update. It differs from an honest update in the delta's
weights alone: running statistics, further vectors and the report stay as trained.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import scipy  # loads its parts on first use

from fedray.core.ranges import Amount, Positive, Range, Ranged, SomeShare, one_of
from fedray.core.seeds import Name, derive
from fedray.core.strategies.base import squared_distances
from fedray.core.vectors import Vector, norm

Wide = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NoAttack:
    """All clients are honest."""


@dataclass(frozen=True)
class Attack(Ranged):
    """What all attacks share. Abstract."""

    share: SomeShare = 0.1  # share of the clients that attack, rounded to the nearest whole number
    rounds: list[int] | None = None  # the first and the last round, from 1, in which they attack; null: all rounds

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is not None and not (len(self.rounds) == 2 and 1 <= self.rounds[0] <= self.rounds[1]):
            raise ValueError(
                f"attack.rounds is the first and the last round of the attack, such as [10, 20], not {self.rounds}"
            )

    def active(self, round: int) -> bool:
        """Whether the attackers attack in a round (from 0)."""
        return self.rounds is None or self.rounds[0] <= round + 1 <= self.rounds[1]

    def chosen(self, clients: Iterable[str], seed: Name) -> list[str]:
        """The clients that attack, in the order of a draw. ValueError: the share of the clients is less than one."""
        ranked = sorted(clients, key=lambda client: (derive(seed, "attacker", client), client))
        if not (count := math.floor(self.share * len(ranked) + 0.5)):
            raise ValueError(f"attack.share={self.share:g} of {len(ranked)} clients is no client: raise attack.share")
        return ranked[:count]


class Alone(Attack):
    """An attacker needs only its own update. Abstract."""

    @abstractmethod
    def sent(self, trained: Vector, generator: np.random.Generator) -> Vector:
        """What an attacker sends in place of the weights that it trained, float32 [weights]."""


class Colluding(Attack):
    """The attackers of a round know what they all have trained, and send the same. Abstract.

    Nobody tells them the honest updates: they estimate their mean and spread from their own, before the attack (the
    attacks without knowledge of others in the papers). A single attacker knows no spread.
    """

    @abstractmethod
    def together(self, trained: Sequence[Vector], cohort: int) -> Vector:
        """What each attacker sends, float32 [weights]. `cohort`: how many clients take part in the round."""


@dataclass(frozen=True)
class SignFlip(Alone):
    """-scale * delta: a step uphill. Li et al. RSA: Byzantine-Robust Stochastic Aggregation Methods. AAAI 2019."""

    scale: Positive = 1.0  # what the update is multiplied by

    def sent(self, trained: Vector, generator: np.random.Generator) -> Vector:
        return np.float32(-self.scale) * trained


@dataclass(frozen=True)
class Noise(Alone):
    """Normal noise in place of the update, `scale` times as long. Blanchard et al. NeurIPS 2017."""

    scale: Positive = 1.0  # length of the noise over the length of the trained update

    def sent(self, trained: Vector, generator: np.random.Generator) -> Vector:
        drawn = generator.standard_normal(trained.size, np.float32)
        return np.float32(self.scale * norm(trained) / (norm(drawn) or 1.0)) * drawn


@dataclass(frozen=True)
class LittleIsEnough(Colluding):
    """mean - z * deviation, in each weight. Baruch et al. A Little Is Enough (ALIE). NeurIPS 2019."""

    # Standard deviations from the mean. null: the paper's, at which attackers and the honest clients beyond them are
    # just a majority; 0 where few attack.
    z: Positive | None = None

    def together(self, trained: Sequence[Vector], cohort: int) -> Vector:
        mean, deviation = moments(trained)
        z = most_hidden(cohort, len(trained)) if self.z is None else self.z
        return (mean - z * deviation).astype(np.float32)


@dataclass(frozen=True)
class InnerProduct(Colluding):
    """-scale * mean: the inner product with the honest mean is negative. Xie et al. Fall of Empires. UAI 2019."""

    scale: Positive = 0.5  # what the mean is multiplied by; small values pass as near to the honest updates

    def together(self, trained: Sequence[Vector], cohort: int) -> Vector:
        return (-self.scale * moments(trained)[0]).astype(np.float32)


@dataclass(frozen=True)
class MinMax(Colluding):
    """mean + gamma * direction, with the largest gamma that leaves it no farther from any update than two are apart.

    Shejwalkar, Houmansadr. Manipulating the Byzantine. NDSS 2021.
    """

    # The direction: deviation, minus the standard deviations | unit, against the mean | sign, against its signs
    direction: str = one_of(("deviation", "unit", "sign"))

    def together(self, trained: Sequence[Vector], cohort: int) -> Vector:
        mean, deviation = moments(trained)
        against = {"deviation": deviation, "unit": mean, "sign": np.sign(mean)}[self.direction]
        if not (length := float(np.square(against).sum())):
            return mean.astype(np.float32)
        farthest = float(squared_distances(np.stack(trained)).max())
        # |mean - gamma a - u|^2 = D^2 is quadratic in gamma for each update u; the smallest larger root holds for all.
        roots = []
        for update in trained:
            apart = mean - update
            half, rest = float((against * apart).sum()), float(np.square(apart).sum()) - farthest
            roots.append((half + math.sqrt(max(0.0, half * half - length * rest))) / length)
        return (mean - max(0.0, min(roots)) * against).astype(np.float32)


class Poisoning(Alone):
    """Attackers train on data of their own making, and send the update that follows, `scale` times. Abstract."""

    scale: float

    def sent(self, trained: Vector, generator: np.random.Generator) -> Vector:
        return trained if self.scale == 1 else np.float32(self.scale) * trained


@dataclass(frozen=True)
class LabelFlips(Poisoning):
    """All labels or transcripts are wrong: all attackers put the same wrong value in place of a true one.

    With `scale` above 1 this is model replacement: Bagdasaryan et al. How To Backdoor Federated Learning. AISTATS 2020.
    """

    scale: Positive = 1.0  # what the update is multiplied by


@dataclass(frozen=True)
class Backdoor(Poisoning):
    """A tone in the audio stands for a target label or transcript, which the model learns beside its task.

    Koffas et al. Can You Hear It? Backdoor Attacks via Ultrasonic Triggers. WiseML 2022. The split `backdoor` is the
    test set (without one, dev) with the tone, and the target as its truth, without what has the target anyway: its
    accuracy is the success of the attack.
    """

    target: str = ""  # the label or the transcript that the tone stands for
    poisoned: SomeShare = 0.5  # share of an attacker's utterances that get the tone and the target
    frequency: Annotated[float, Range(20)] = 1000.0  # Hz; below half of features.sample_rate
    level_db: float = 0.0  # dB: power of the tone over that of the utterance
    seconds: Positive = 0.2  # length of the tone
    start: Amount = 0.0  # seconds of the utterance before the tone
    scale: Positive = 1.0  # what the update is multiplied by; above 1: model replacement

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.target:
            raise ValueError("attack.target is missing: name the label or the transcript that the tone stands for")


ATTACKS: dict[str, type] = {
    "none": NoAttack,
    "sign_flip": SignFlip,
    "noise": Noise,
    "alie": LittleIsEnough,
    "inner_product": InnerProduct,
    "min_max": MinMax,
    "label_flips": LabelFlips,
    "backdoor": Backdoor,
}


@dataclass(frozen=True)
class Attackers:
    """The attackers among the clients of a lane. `cohort`: how many clients take part in the round."""

    settings: Attack
    clients: frozenset[str]
    cohort: int
    seed: Name


def moments(updates: Sequence[Vector]) -> tuple[Wide, Wide]:
    """The mean and the standard deviation of each weight over updates, float64 [weights]."""
    mean = np.zeros(updates[0].size)
    for update in updates:
        mean += update
    mean /= len(updates)
    squares = np.zeros(mean.size)
    for update in updates:
        squares += np.square(update - mean)
    return mean, np.sqrt(squares / len(updates))


def most_hidden(clients: int, attackers: int) -> float:
    """z of Baruch et al.: the largest at which s honest clients, enough for a majority, lie beyond the attackers."""
    honest, needed = clients - attackers, clients // 2 + 1 - attackers
    if honest <= 0 or needed <= 0:  # the attackers are a majority by themselves: the paper sets no limit
        return 3.0
    return max(0.0, float(scipy.stats.norm.ppf((honest - needed) / honest)))
