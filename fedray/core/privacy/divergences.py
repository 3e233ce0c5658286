"""Renyi divergences that dp-accounting does not have: Skellam noise, and sampling before any mechanism.

They are float64 [255], at the orders 2, 3, ..., 256, unless `between` says otherwise.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp

Orders = npt.NDArray[np.float64]
WHOLE = np.arange(2.0, 257.0)


def skellam(noise: float) -> Orders:
    """Divergences of a sum with Skellam noise, whose standard deviation is noise x bound after rounding.

    A client is replaced by another, which moves the sum by two bounds. This is the first term of Agarwal, Kairouz, Liu,
    NeurIPS 2021, theorem 3.5, which is that of Gaussian noise. The second term, for the grid of whole numbers, is below
    0.1 % of the first whenever `planned` accepts the number of bits.
    """
    return WHOLE * 2**2 / (2 * noise**2)


def mixed(orders: Orders, base: Orders, rate: float) -> Orders:
    """Bounds for any mechanism on a sample that has the replaced client with probability `rate`.

    `base`: bounds for the samples that have it. exp((order - 1) divergence) is an f-divergence, and therefore jointly
    convex: its value for the mixture is at most the mean over samples with the client and those without, which is 1.
    """
    if rate == 1.0:
        return base
    powers = orders - 1
    return np.asarray(np.logaddexp(np.log1p(-rate), np.log(rate) + powers * base) / powers)


def without_replacement(base: Orders, rate: float) -> Orders:
    """Divergences of a mechanism on a sample of fixed size, for a client replaced by another.

    `base`: the mechanism's divergences, for the same neighbours. The smaller of `mixed` and Wang, Balle,
    Kasiviswanathan, AISTATS 2019, theorem 9.
    """
    logs = math.log(2) + (WHOLE - 1) * base  # for the powers 2, 3, ...
    logs[0] = min(logs[0], math.log(4) + base[0] + math.log(-math.expm1(-base[0])))
    k = WHOLE.astype(int)
    found = [logsumexp(np.append(_binomial(order, k[: order - 1], rate) + logs[: order - 1], 0.0)) for order in k]
    return np.asarray(np.minimum(np.array(found) / (WHOLE - 1), mixed(WHOLE, base, rate)))


def between(orders: Orders, found: Orders) -> Orders:
    """Bounds on the divergences at any orders above 1, from those at whole orders; infinite beyond the largest.

    (order - 1) times the divergence is convex in the order, and 0 at order 1: interpolation bounds it from above.
    """
    logs = np.interp(orders, np.append(1.0, WHOLE), np.append(0.0, (WHOLE - 1) * found), right=math.inf)
    return np.asarray(logs / (orders - 1))


def _binomial(order: int, k: npt.NDArray[np.int64], rate: float) -> npt.NDArray[np.float64]:
    """log(C(order, k) rate^k) for each k."""
    found: npt.NDArray[np.float64] = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1) + k * math.log(rate)
    return found
