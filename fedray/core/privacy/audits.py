"""The section `audit` of a configuration: candidates for the federation. An attacker guesses which of them took part.

A fair coin decides for each candidate whether it is inside. At the end of a run each candidate has a score, from which
`findings` computes what an attacker knows. `Updates` and `Inversion` have no candidates: they ask what the updates of
clients tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from fedray.core.privacy import attacks
from fedray.core.privacy.attacks import Scores
from fedray.core.ranges import Count, Fraction, Positive, Range, Ranged
from fedray.core.seeds import Name, derive, numpy_generator
from fedray.core.types import Update, Vector

PREFIX = "canary-"  # of the names of canaries and of their utterances
FASTEST = 4.0  # times the usual speed of speech
# Before clipping, a direction is LENGTH times as long as its bound, and its client reports EXAMPLES examples: an audit
# finds code that does not clip, or that weighs by examples.
LENGTH, EXAMPLES = 100.0, 1e4
FALSE_POSITIVES = 0.01  # the rate of false positives at which the rate of true positives is given


@dataclass(frozen=True)
class NoAudit:
    """Nothing is audited."""


@dataclass(frozen=True)
class Audit(Ranged):
    """What all audits share."""

    clients: Annotated[int, Range(4)] = (
        100  # candidates, at least two on each side; a fair coin puts each of them inside or outside the federation
    )

    @property
    def names(self) -> list[str]:
        """The names of canaries."""
        return [f"{PREFIX}{index:04d}" for index in range(self.clients)]


@dataclass(frozen=True)
class Canaries(Audit):
    """Made-up clients who say random words too fast: what a model knows of them, it has memorised.

    Their score is the drop in their loss since the seed model. Wang, Thakkar, Mathews. Unintended Memorization in Large
    ASR Models, and How to Mitigate It. ICASSP 2024.
    """

    utterances: Count = 4  # utterances of each canary
    repeat: Count = 8  # how often each utterance occurs in its canary's training data
    speed: Annotated[float, Range(0.5, FASTEST)] = 2.0  # how much faster than usual a canary speaks


@dataclass(frozen=True)
class Speakers(Audit):
    """Random clients; those outside do not train. Their score is the drop in the loss on their speech."""

    utterances: Count = 10  # utterances of each client on which it is judged


@dataclass(frozen=True)
class Directions(Audit):
    """Clients without data: each sends its own random direction, as long as the bound of `privacy.clip`.

    Their score is the inner product of their direction and the change of the model. Andrew et al. One-shot Empirical
    Privacy Estimation for Federated Learning. ICLR 2024.
    """

    def inside(self, seed: Name) -> list[str]:
        """The canaries that are clients of the run with this seed."""
        return [name for name, taken in coins(self.names, seed).items() if taken]


@dataclass(frozen=True)
class Updates(Audit):
    """What an attacker reads off the updates that the server receives: attributes of clients, and who sent them.

    The attacker trains on the updates of auxiliary clients, whose data it knows and who take no part in the run.
    `clients`: how many clients of the federation it attacks.
    """

    # What it guesses of a client: label (its most frequent one), or attributes of speakers: columns of `file`, or what
    # the corpus knows (embedded speech: language, accent, gender, noise)
    attributes: list[str] = field(default_factory=lambda: ["label"])
    # A table (tsv or csv with a header) that names speakers, as often as it likes; null: the corpus knows attributes
    file: str | None = None
    speaker: str = "speaker"  # the column of `file` with the speakers' names, as in the corpus
    auxiliary: Fraction = 0.3  # share of the clients that take no part and that the attacker knows
    # Numbers of updates that it sees as one sum, as under secure aggregation; each is attacked; 1: single updates
    sums: list[Count] = field(default_factory=lambda: [1])

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.attributes)) < len(self.attributes):
            raise ValueError(f"attributes must be different ones, not {self.attributes}")
        if not self.sums or len(set(self.sums)) < len(self.sums):
            raise ValueError(f"sums must be one number of updates or several different ones, not {self.sums}")


@dataclass(frozen=True)
class Inversion(Audit):
    """What an attacker reconstructs of speech from the update of a client that trains on one or a few utterances.

    It knows the model, and the labels or transcripts and the lengths of the utterances. `clients`: how many it attacks.
    Dang et al. A Method to Reveal Speaker Identity in Distributed ASR Training, and How to Counter It. ICASSP 2022.
    """

    clients: Annotated[int, Range(2)] = 20  # how many clients it attacks
    utterances: Count = 1  # on which a client trains before it sends the update
    steps: Count = 900  # of the attacker's Adam, three passes over the utterances each
    rate: Positive = 0.3  # of the attacker's Adam


AUDITS: dict[str, type] = {
    "none": NoAudit,
    "canaries": Canaries,
    "speakers": Speakers,
    "directions": Directions,
    "updates": Updates,
    "inversion": Inversion,
}


def coins(names: Iterable[str], seed: Name) -> dict[str, bool]:
    """Candidate -> whether it is inside. ValueError: the coins leave fewer than two on a side."""
    found = {name: bool(numpy_generator(seed, "audit", name, "coin").random() < 0.5) for name in names}
    count = sum(found.values())
    if min(count, len(found) - count) < 2:
        raise ValueError(
            f"{count} of {len(found)} candidates take part, but an audit needs at least two inside and two outside: "
            "raise audit.clients, or change the seed"
        )
    return found


def drawn(clients: Iterable[str], settings: Audit, seed: Name) -> list[str]:
    """Draw the candidates from the clients, by their names. ValueError: there are too few clients."""
    ranked = sorted(clients, key=lambda client: derive(seed, "audit", client, "candidate"))
    if len(ranked) < settings.clients:
        raise ValueError(f"the federation has {len(ranked)} clients, fewer than audit.clients ({settings.clients})")
    return ranked[: settings.clients]


def parted(clients: Iterable[str], settings: Updates, seed: Name) -> tuple[list[str], list[str]]:
    """Draw the auxiliary clients and those under attack, by their names. ValueError: there are too few of either."""
    ranked = sorted(clients, key=lambda client: derive(seed, "audit", client, "candidate"))
    count = round(settings.auxiliary * len(ranked))
    auxiliary, rest = ranked[:count], ranked[count:]
    if len(rest) < settings.clients:
        raise ValueError(
            f"audit.clients ({settings.clients}) are attacked, and {len(rest)} of {len(ranked)} clients take part "
            f"beside the auxiliary ones: lower audit.clients, or audit.auxiliary ({settings.auxiliary:g})"
        )
    if 2 * (largest := max(settings.sums)) > (least := min(count, settings.clients)):
        raise ValueError(
            f"audit.sums: sums of {largest} updates would all be alike: {count} auxiliary clients and "
            f"{settings.clients} under attack allow sums of {least // 2} at most: lower the number, or raise "
            "audit.clients and audit.auxiliary"
        )
    return auxiliary, rest[: settings.clients]


def direction(name: str, size: int, seed: Name) -> Vector:
    """The unit vector of a canary, float32 [size]."""
    return attacks.direction(size, numpy_generator(seed, "audit", name, "direction"))


def sent(name: str, size: int, bound: float, seed: Name) -> Update:
    """The update that a canary sends in every round, before it is clipped to a bound."""
    delta: Vector = np.float32(LENGTH * bound) * direction(name, size, seed)
    return Update(delta, {"examples": EXAMPLES, "loss": 1.0})


def findings(settings: Audit, inside: Scores, outside: Scores, delta: float, claimed: float | None) -> dict[str, Any]:
    """What an attacker knows, as results.json has it. `claimed`: the epsilon that the run guarantees; None: none.

    `epsilon_low` holds with 95 % confidence. If it is the larger of two bounds, each holds with 97.5 %; the bound from
    `separation` assumes normally distributed scores.
    """
    both = isinstance(settings, Directions) and delta > 0
    confidence = 0.975 if both else 0.95
    rate = attacks.true_positives(inside, outside, FALSE_POSITIVES)
    found: dict[str, Any] = {
        "inside": len(inside),
        "outside": len(outside),
        "auroc": attacks.auroc(inside, outside),
        "true_positives": rate.rate,
        "true_positives_low": rate.low,
        "true_positives_high": rate.high,
        "false_positives_high": rate.false,
        "delta": delta,
        "epsilon_low": attacks.one_run(inside, outside, delta, confidence),
    }
    if both:
        apart = attacks.separation(inside, outside, confidence)
        estimate, low = apart.epsilon(delta)
        found |= {"mu": apart.mu, "epsilon_estimated": estimate, "epsilon_low": max(found["epsilon_low"], low)}
    return found | {"epsilon_claimed": claimed, "refuted": claimed is not None and found["epsilon_low"] > claimed}
