"""Whether two updates come from one client: the cosine of what sets each of them apart from others' updates.

The first is trained from one model on half of the client's utterances, the second from another model on the other half.
Models differ, so an attacker also learns a linear map from first to second updates of the clients that it knows, and
compares what the map makes of a first update with the second. It uses what tells these clients apart best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedray.core.privacy.inference import DRAWS, ENDS
from fedray.core.privacy.observations import LEAST, Numbers, products, standard
from fedray.core.seeds import numpy_generator

RIDGES = (0.1, 1.0)  # of the map, for each client that it is learnt from
Likeness = npt.NDArray[np.float64]  # [clients, clients]: of the first update of a row and the second of a column
Pair = tuple[Numbers, Numbers]  # the first and the second updates of the same clients


@dataclass(frozen=True)
class Recognised:
    """How alike the updates are, and in which views of them."""

    likeness: Likeness
    view: str


def recognise(known: Mapping[str, Pair], attacked: Mapping[str, Pair]) -> Recognised:
    """Compare the updates of attacked clients, in the views and the way that tell known clients apart."""
    best: list[Recognised] = []  # of known clients: by cosine, and by map
    found: list[Recognised] = []  # of attacked clients
    for options, compare in (((False, True), _likeness), (RIDGES, _mapped)):
        tried = [
            (Recognised(compare(pair, pair, option), name), option)
            for name, pair in known.items()
            for option in options
        ]
        one, option = max(tried, key=lambda each: auroc(each[0].likeness))
        words = f"{one.view}{', mapped' * (compare is _mapped)}"
        mean, spread = one.likeness.mean(), max(float(one.likeness.std()), LEAST)
        best.append(Recognised((one.likeness - mean) / spread, words))
        likeness = compare(known[one.view], attacked[one.view], option)
        found.append(Recognised((likeness - mean) / spread, words))
    both = [_together(*side) for side in (best, found)]
    choices = [*zip(best, found, strict=True), (both[0], both[1])]
    return max(choices, key=lambda choice: auroc(choice[0].likeness))[1]


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


def _together(one: Recognised, other: Recognised) -> Recognised:
    return Recognised(one.likeness + other.likeness, f"{one.view}; {other.view}")


def _likeness(known: Pair, attacked: Pair, scaled: float) -> Likeness:
    """The cosine of each first and each second update, less the mean of known ones: float64 [attacked, attacked].

    `scaled` (0 or 1): each number also has standard deviation 1 over known updates.
    """
    sides = [
        standard(fitted, numbers)[1] if scaled else numbers - fitted.mean(0)
        for fitted, numbers in zip(known, attacked, strict=True)
    ]
    return _cosines(*sides)


def _mapped(known: Pair, attacked: Pair, ridge: float) -> Likeness:
    """The cosine of what ridge regression makes of each first update and each second one. `known` itself: without it.

    Known clients are compared by maps that leave each of them out, which have a closed form.
    """
    first, seen = standard(known[0], attacked[0])
    second, wanted = standard(known[1], attacked[1])
    kernel, target = torch.from_numpy(products(first)), torch.from_numpy(second)
    scale = float(kernel.diagonal().mean())
    inverse = torch.linalg.inv(kernel + (ridge * scale + LEAST) * torch.eye(len(kernel), dtype=torch.float64))
    if attacked is known:
        hat = kernel @ inverse
        own = hat.diagonal()[:, None]
        made = (hat @ target - own * target) / (1 - own).clamp(min=LEAST)
    else:
        made = torch.from_numpy(products(seen, first)) @ inverse @ target
    return _cosines(made.numpy(), wanted)


def _cosines(one: Numbers, other: Numbers) -> Likeness:
    """The cosine of each observation and each of `other`: float64 [one, other]."""
    sides = [side / np.maximum(np.sqrt(np.square(side).sum(1, keepdims=True)), LEAST) for side in (one, other)]
    found: Likeness = products(*sides) * one.shape[1]
    return found
