"""Guesses of a client's attribute from its update: ridge regression that an attacker fits on clients that it knows.

What it looks at (`fedray.core.privacy.observations.views`) and how strongly it is regularised is chosen by
cross-validation on these clients alone, so that the clients under attack decide nothing. The scores of the best views
are averaged: with few known clients, the best of many is often best by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
import torch

from fedray.core.privacy.observations import Numbers, products, standard
from fedray.core.privacy.sketches import Places
from fedray.core.seeds import numpy_generator

FOLDS = 5
BEST = 5  # views whose scores are averaged
RIDGES = 10.0 ** np.arange(-4, 3)  # of the mean square of an observation, for each observation
DRAWS = 1000
ENDS = (2.5, 97.5)  # percent: a 95 % interval
Scores = npt.NDArray[np.float64]  # [observations, values]


@dataclass(frozen=True)
class Guesses:
    """An attacker's scores of each value, [clients, values], and the views of the updates that it chose."""

    scores: Scores
    prior: npt.NDArray[np.float64]  # [values], shares among the clients that the attacker knows
    views: tuple[str, ...]  # the best first

    @property
    def values(self) -> Places:
        """The value of each client that is most probable."""
        found: Places = self.scores.argmax(1)
        return found

    @property
    def balanced(self) -> Places:
        """The value of each client that is most probable if all values are equally frequent."""
        found: Places = (self.scores / self.prior).argmax(1)
        return found


def guess(known: Mapping[str, Numbers], values: Places, clients: Places, attacked: Mapping[str, Numbers]) -> Guesses:
    """Guess the values of attacked clients from views of their updates: name -> float64 [clients, numbers].

    `known`: the same views of updates of clients that the attacker knows; `values`: theirs, 0 .. values - 1, each at
    least once; `clients`: whose each update is. Bits do not depend on threads: torch has one.
    """
    folds = _folds(values, clients)
    tried = []
    for name, numbers in known.items():
        found = [
            (auroc(scores, values), ridge) for ridge, scores in _tried(products(*standard(numbers)), values, folds)
        ]
        best, ridge = max(found, key=lambda one: one[0])
        tried.append((best, ridge, name))
    chosen = sorted(tried, key=lambda one: -one[0])[:BEST]
    parts = []
    for _, ridge, name in chosen:
        fitted, others = standard(known[name], attacked[name])
        parts.append(_fit(products(fitted), values, products(others, fitted), [ridge])[0])
    return Guesses(np.mean(parts, axis=0), _prior(values), tuple(name for _, _, name in chosen))


def auroc(scores: Scores, values: Places) -> float:
    """The area under the ROC curve of each value against the others, the mean over values that occur; 0.5: none do."""
    found = []
    for value in range(scores.shape[1]):
        inside = values == value
        if 0 < (count := int(inside.sum())) < len(values):
            ranks = scipy.stats.rankdata(scores[:, value])[inside].sum()
            found.append((ranks - count * (count + 1) / 2) / (count * (len(values) - count)))
    return float(np.mean(found)) if found else 0.5


def findings(guesses: Guesses, values: Places) -> dict[str, Any]:
    """How good the guesses are, as results.json has it; intervals are of a bootstrap over clients."""
    scores, right = guesses.scores, guesses.values == values
    present = np.unique(values)
    recalls = [float(np.mean(guesses.balanced[values == value] == value)) for value in present]
    generator, draws = numpy_generator("audit", "bootstrap"), []
    for _ in range(DRAWS):
        rows = generator.integers(0, len(values), len(values))
        draws.append((auroc(scores[rows], values[rows]), float(right[rows].mean())))
    (low, low_accuracy), (high, high_accuracy) = np.percentile(draws, ENDS, axis=0)
    return {
        "clients": len(values),
        "accuracy": float(right.mean()),
        "accuracy_low": float(low_accuracy),
        "accuracy_high": float(high_accuracy),
        "chance": float(np.mean(values == guesses.prior.argmax())),
        "balanced_accuracy": float(np.mean(recalls)),
        "auroc": auroc(scores, values),
        "auroc_low": float(low),
        "auroc_high": float(high),
        "views": list(guesses.views),
    }


def _tried(kernel: Numbers, values: Places, folds: Places) -> list[tuple[float, Scores]]:
    """The scores of each observation by a regression without its fold, for each ridge."""
    scores = np.zeros((len(RIDGES), len(values), int(values.max()) + 1))
    for fold in np.unique(folds):
        inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        within = kernel[np.ix_(inside, inside)], values[inside], kernel[np.ix_(outside, inside)]
        scores[:, outside] = _fit(*within, RIDGES.tolist(), scores.shape[2])
    return list(zip(RIDGES.tolist(), scores, strict=True))


def _fit(
    kernel: Numbers, values: Places, others: Numbers, ridges: Sequence[float], count: int | None = None
) -> npt.NDArray[np.float64]:
    """The scores of other observations for each ridge: float64 [ridges, others, values].

    kernel, others: the products of observations, [fitted, fitted] and [others, fitted].
    """
    prior = _prior(values, count)
    wanted = torch.from_numpy(np.eye(len(prior))[values] - prior)
    spectrum, vectors = torch.linalg.eigh(torch.from_numpy(kernel))
    projected, seen = vectors.T @ wanted, torch.from_numpy(others) @ vectors
    scale = float(spectrum.clamp(min=0).mean())  # the mean square of an observation
    found = [seen @ (projected / (spectrum.clamp(min=0) + len(values) * ridge * scale + 1e-12)[:, None])
             for ridge in ridges]  # fmt: skip
    return np.stack([one.numpy() for one in found]) + prior


def _prior(values: Places, count: int | None = None) -> npt.NDArray[np.float64]:
    counts = np.bincount(values, minlength=count or 0)
    return np.maximum(counts, 1e-9) / len(values)


def _folds(values: Places, clients: Places) -> Places:
    """The fold of each observation; observations of a client share one, and each value is in as many as possible."""
    order = numpy_generator("audit", "folds").permutation(int(clients.max()) + 1)
    folds, place = np.zeros(len(values), np.int64), 0
    for value in np.unique(values):
        for client in sorted(np.unique(clients[values == value]), key=lambda client: order[client]):
            folds[clients == client] = place % FOLDS
            place += 1
    return folds
