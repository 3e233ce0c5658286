"""What an attacker learns from released models: how well canaries that took part can be told from those that did not.

A canary has a score, which is larger if it seems to have taken part: the drop in its loss, or the inner product of the
released change and a direction that only this canary sent. `inside` and `outside` are the scores of canaries inside and
outside the federation, float [canaries]. A lower bound on epsilon above the claimed epsilon refutes the claim; a lower
bound of 0 proves nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # loads its parts on first use: a driver needs none of them, and they take half a second

from fedray.core.seeds import numpy_generator
from fedray.core.types import Vector

Scores = npt.NDArray[np.floating]
LARGEST = 100.0  # the largest epsilon at which a bound is searched for
SHARES = (1.0, 0.5, 0.2)  # shares of the canaries that an attack in one run guesses; it leaves the others open


@dataclass(frozen=True)
class Rate:
    """A true-positive rate with its Clopper-Pearson interval, at a threshold that `outside` chose."""

    rate: float
    low: float
    high: float
    threshold: float
    false: float  # the upper end of the interval of the false-positive rate at this threshold


def auroc(inside: Scores, outside: Scores) -> float:
    """The probability that a random canary inside has a larger score than one outside; ties count half."""
    _check(inside, outside)
    return float(scipy.stats.mannwhitneyu(inside, outside).statistic) / (len(inside) * len(outside))


def clopper_pearson(count: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval of a binomial share, `count` of `trials`."""
    side = (1 - confidence) / 2
    return float(_least(count, trials, side)), float(_most(count, trials, side))


def true_positives(inside: Scores, outside: Scores, false_positives: float = 0.01, confidence: float = 0.95) -> Rate:
    """The share of canaries inside above a threshold that at most `false_positives` of those outside exceed.

    With fewer than 1 / `false_positives` canaries outside, none of them exceeds it; `false` says how much this proves.
    """
    _check(inside, outside)
    allowed = math.floor(false_positives * len(outside))
    threshold = float(np.sort(outside)[len(outside) - 1 - allowed])
    found, wrong = int(np.sum(inside > threshold)), int(np.sum(outside > threshold))
    low, high = clopper_pearson(found, len(inside), confidence)
    return Rate(found / len(inside), low, high, threshold, clopper_pearson(wrong, len(outside), confidence)[1])


def one_run(inside: Scores, outside: Scores, delta: float, confidence: float = 0.95) -> float:
    """A lower bound on epsilon from the canaries of one run, each of which a fair coin put inside or outside.

    Steinke, Nasr, Jagielski. Privacy Auditing with One (1) Training Run. NeurIPS 2023. The attack guesses that the
    largest scores are inside and the smallest outside. It is tried with each of `SHARES`, each at a third of the error.
    """
    _check(inside, outside)
    scores, members = _shuffled(inside, outside)
    members = members[np.argsort(scores, kind="stable")]
    canaries, error = len(members), (1 - confidence) / len(SHARES)
    best = 0.0
    for share in SHARES:
        half = max(1, math.floor(share * canaries / 2))
        correct = int(np.sum(members[-half:])) + int(np.sum(~members[:half]))
        best = max(best, _refuted(canaries, 2 * half, correct, delta, error))
    return best


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of `correct` or more right guesses under (epsilon, delta).

    Steinke et al., theorem 5.2. `canaries`: all of them, including those that the attack leaves open.
    """
    assert 0 <= correct <= guesses <= canaries
    q = 1 / (1 + math.exp(-epsilon))
    tail = float(scipy.stats.binom.sf(correct - 1, guesses, q))
    below = np.cumsum(scipy.stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, q))
    steepest = float(np.max(below / np.arange(1, correct + 1), initial=0.0))
    return min(1.0, tail + 2 * canaries * delta * steepest)


@dataclass(frozen=True)
class Separation:
    """mu, the distance between two normal distributions in units of their standard deviation, and its lower bound."""

    mu: float
    low: float

    def epsilon(self, delta: float) -> tuple[float, float]:
        """(epsilon, its lower bound) of a Gaussian mechanism with this mu."""
        return gaussian_epsilon(self.mu, delta), gaussian_epsilon(self.low, delta)


def direction(size: int, generator: np.random.Generator) -> Vector:
    """A random unit vector, float32 [size]: the update of a canary client before it is scaled to the bound C.

    Its score is the sum over rounds of its inner product with the released change. Directions that nobody sent are the
    canaries outside, whose scores cost nothing (Andrew et al., One-shot Empirical Privacy Estimation for Federated
    Learning, ICLR 2024).
    """
    drawn = generator.standard_normal(size)
    unit: Vector = (drawn / np.linalg.norm(drawn)).astype(np.float32)
    return unit


def separation(inside: Scores, outside: Scores, confidence: float = 0.95) -> Separation:
    """Estimate mu from normal scores of equal variance, such as those of directions under Gaussian noise.

    For the Gaussian mechanism with noise z and one participation, mu is 1 / z; what other clients send adds to the
    variance, and makes mu smaller. The lower bound takes half of the error for the difference and half for the
    variance.
    """
    _check(inside, outside)
    freedom = len(inside) + len(outside) - 2
    if freedom < 2:
        raise ValueError(f"{freedom + 2} canaries are too few for a variance: give audit.clients=4 or more")
    squares = float(np.var(inside) * len(inside) + np.var(outside) * len(outside))
    deviation, side = math.sqrt(squares / freedom), (1 - confidence) / 2
    apart = float(np.mean(inside) - np.mean(outside))
    if deviation == 0:
        raise ValueError("the scores of all canaries are equal, or they have no noise at all: there is no estimate")
    margin = float(scipy.stats.t.ppf(1 - side, freedom)) * deviation * math.sqrt(1 / len(inside) + 1 / len(outside))
    widest = math.sqrt(squares / float(scipy.stats.chi2.ppf(side, freedom)))
    return Separation(max(0.0, apart / deviation), max(0.0, apart - margin) / widest)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta of a Gaussian mechanism at epsilon; mu is sensitivity / standard deviation (Balle, Wang, ICML 2018)."""
    if mu <= 0:
        return 0.0
    far = epsilon / mu
    return float(scipy.stats.norm.cdf(mu / 2 - far) - math.exp(epsilon + float(scipy.stats.norm.logcdf(-mu / 2 - far))))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """epsilon of a Gaussian mechanism at delta, the inverse of `gaussian_delta`."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    most = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # the tail bound of the privacy loss
    return float(scipy.optimize.brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, most, xtol=1e-9))


def _refuted(canaries: int, guesses: int, correct: int, delta: float, error: float) -> float:
    """The largest epsilon at which so many right guesses have a probability below `error`; 0: there is none."""

    def above(epsilon: float) -> float:
        return p_value(canaries, guesses, correct, epsilon, delta) - error

    if above(0.0) >= 0:
        return 0.0
    return float(scipy.optimize.brentq(above, 0.0, LARGEST, xtol=1e-6)) if above(LARGEST) > 0 else LARGEST


def _least(count: npt.ArrayLike, trials: int, side: float) -> npt.NDArray[np.float64]:
    count = np.asarray(count)
    return np.where(count == 0, 0.0, scipy.stats.beta.ppf(side, np.maximum(count, 1), trials - count + 1))


def _most(count: npt.ArrayLike, trials: int, side: float) -> npt.NDArray[np.float64]:
    count = np.asarray(count)
    return np.where(count == trials, 1.0, scipy.stats.beta.ppf(1 - side, count + 1, np.maximum(trials - count, 1)))


def _shuffled(inside: Scores, outside: Scores) -> tuple[Scores, npt.NDArray[np.bool_]]:
    """All scores, and which are inside, in a random order, so that the order of equal scores reveals nothing."""
    order = numpy_generator("audit", "order").permutation(len(inside) + len(outside))
    members = np.arange(len(order)) < len(inside)
    return np.concatenate([inside, outside])[order], members[order]


def _check(inside: Scores, outside: Scores) -> None:
    for name, scores in (("inside", inside), ("outside", outside)):
        if len(scores) < 2:
            raise ValueError(f"an audit needs at least two canaries {name} the federation, not {len(scores)}")
        if not np.isfinite(scores).all():
            raise ValueError(f"the score of a canary {name} the federation is not finite: the model has diverged")
