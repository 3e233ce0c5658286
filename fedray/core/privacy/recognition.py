"""Whether two updates come from one client: the cosine of what sets each of them apart from others' updates.

The first is trained from one model on half of the client's utterances, the second from another model on the other half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedray.core.privacy.inference import DRAWS, ENDS
from fedray.core.privacy.observations import LEAST, Numbers, products, standard
from fedray.core.seeds import numpy_generator

Likeness = npt.NDArray[np.float64]  # [clients, clients]: of the first update of a row and the second of a column
Pair = tuple[Numbers, Numbers]  # the first and the second updates of the same clients


@dataclass(frozen=True)
class Recognised:
    """How alike the updates are, and the view of them that the attacker chose."""

    likeness: Likeness
    view: str


def recognise(known: Mapping[str, Pair], attacked: Mapping[str, Pair]) -> Recognised:
    """Compare the updates of attacked clients, in the view that tells the clients apart that the attacker knows."""
    best, chosen = -np.inf, ("", False)
    for name, pair in known.items():
        for scaled in (False, True):
            if (found := auroc(_likeness(pair, pair, scaled))) > best:
                best, chosen = found, (name, scaled)
    name, scaled = chosen
    likeness = _likeness(known[name], attacked[name], scaled)
    return Recognised(likeness, f"{name}{', each number scaled' * scaled}")


def auroc(likeness: Likeness, weights: npt.NDArray[np.float64] | None = None) -> float:
    """The probability that two updates of one client are more alike than those of two. Ties count half.

    `weights`: how often each client counts, [clients]; None: once.
    """
    weights = np.ones(len(likeness)) if weights is None else weights
    return _Ranks.of(likeness).auroc(weights)


def findings(found: Recognised) -> dict[str, Any]:
    """How well clients are recognised, as results.json has it; intervals are of a bootstrap over clients."""
    ranks, clients = _Ranks.of(found.likeness), len(found.likeness)
    generator = numpy_generator("audit", "bootstrap")
    draws = [
        ranks.auroc(np.bincount(generator.integers(0, clients, clients), minlength=clients).astype(np.float64))
        for _ in range(DRAWS)
    ]
    low, high = np.percentile(draws, ENDS)
    return {
        "clients": clients,
        "auroc": ranks.auroc(np.ones(clients)),
        "auroc_low": float(low),
        "auroc_high": float(high),
        "first": float(np.mean(found.likeness.argmax(1) == np.arange(clients))),  # the own update is the most alike
        "chance": 1 / clients,
        "view": found.view,
    }


@dataclass(frozen=True)
class _Ranks:
    """The pairs of different clients in the order of their likeness, and where pairs of one client belong in it."""

    first: npt.NDArray[np.int64]  # [pairs]
    second: npt.NDArray[np.int64]  # [pairs]
    below: npt.NDArray[np.int64]  # [clients]: pairs that are less alike than a client's own
    within: npt.NDArray[np.int64]  # [clients]: these, and those equally alike

    @classmethod
    def of(cls, likeness: Likeness) -> _Ranks:
        first, second = np.nonzero(~np.eye(len(likeness), dtype=bool))
        values, own = likeness[first, second], np.diagonal(likeness)
        order = np.argsort(values, kind="stable")
        ends = (np.searchsorted(values[order], own, side) for side in ("left", "right"))
        return cls(first[order], second[order], *ends)

    def auroc(self, weights: npt.NDArray[np.float64]) -> float:
        sums = np.concatenate([[0.0], np.cumsum(weights[self.first] * weights[self.second])])
        wins = (sums[self.below] + sums[self.within]) / 2
        total = weights.sum() * sums[-1]
        return float((weights * wins).sum() / total) if total else 0.5


def _likeness(known: Pair, attacked: Pair, scaled: bool) -> Likeness:
    """The cosine of each first and each second update, less the mean of known ones: float64 [attacked, attacked].

    `scaled`: each number also has standard deviation 1 over known updates.
    """
    sides = []
    for fitted, numbers in zip(known, attacked, strict=True):
        apart = standard(fitted, numbers)[1] if scaled else numbers - fitted.mean(0)
        norms = np.sqrt(np.square(apart).sum(1, keepdims=True))
        sides.append(apart / np.maximum(norms, LEAST))
    found: Likeness = products(*sides) * sides[0].shape[1]
    return found
