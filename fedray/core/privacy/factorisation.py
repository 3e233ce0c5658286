"""Correlated noise: a banded inverse factorisation of the sums over rounds, and how far a client can move them.

Kalinin, McKenna, Upadhyay, Lampert. Back to Square Roots. arXiv 2505.12128. A model after t rounds is a sum of t
changes. The matrix of these sums is A, lower triangular with ones. The rounds get the noise C^-1 Z, where row t of Z is
drawn in round t, so the sums have the noise A C^-1 Z. C^-1 is A^(-1/2) cut to p bands: a round uses the draws of p
rounds.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import scipy

Numbers = npt.NDArray[np.float64]


def coefficients(bands: int) -> Numbers:
    """w_0 .. w_(p-1), float64 [bands]: the noise of round t is the sum of w_j z_(t-j), and w_0 is 1.

    They are the first coefficients of sqrt(1 - x). The paper calls the factorisation BISR. One band is independent
    noise.
    """
    j = np.arange(1, bands)
    return np.cumprod(np.concatenate([[1.0], (j - 1.5) / j]))


@cache
def sensitivities(bands: int, rounds: int, every: int) -> Numbers:
    """How far a client moves the released sums up to each round, if draws have standard deviation 1: float64 [rounds].

    The client takes part in one round of each `every`, with updates of norm 1 at most. Since the columns of C decrease
    and are not negative, its largest effect is that of equal updates from the first round on (Kalinin and Lampert,
    2024).
    """
    first = np.zeros(rounds)
    first[0] = 1.0
    band = coefficients(bands)[:rounds]
    band = np.pad(band, (0, rounds - len(band)))
    column = scipy.linalg.solve_toeplitz((band, first), first)  # of C, the inverse of the band
    moved = np.zeros(rounds)
    for start in range(0, rounds, every):
        moved[start:] += column[: rounds - start]
    return np.asarray(np.sqrt(np.cumsum(np.square(moved))))


def squared_error(bands: int, rounds: int) -> float:
    """The mean over rounds of the noise's variance in the sum up to the round, if draws have standard deviation 1.

    For independent noise it is (rounds + 1) / 2.
    """
    band = coefficients(bands)[:rounds]
    sums = np.cumsum(np.pad(band, (0, rounds - len(band))))
    return float(np.cumsum(np.square(sums)).mean())
