"""What the compiled loops share: functions of single values, which numba inlines into the loops.

Loops run over contiguous float32 arrays, and do in one pass over memory what torch does in many. A hash of its place
and a seed decides whether dropout keeps an activation: a backward pass computes the mask again instead of storing it.
"""

from __future__ import annotations

import os
from typing import Any

import numba.core.config as compiler
import numpy as np
from numba import njit

from fedray.models.kernels import loops_folder


def _cache() -> bool:
    """Have numba store compiled loops in `loops_folder`; returns whether it can."""
    folder = loops_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    compiler.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    return os.access(folder, os.W_OK)


OPTIONS: dict[str, Any] = {"fastmath": True, "error_model": "numpy", "nogil": True, "cache": _cache()}
INLINE: dict[str, Any] = {"inline": "always", "fastmath": True, "error_model": "numpy"}
F = np.float32
U = np.uint32


@njit(**INLINE)
def keeps(place, seed, threshold):
    """Whether dropout keeps the activation at a place: a hash (the finaliser of MurmurHash3) reaches the threshold."""
    h = U(U(U(place) * U(0x9E3779B1)) ^ seed)
    h = U(h ^ U(h >> U(16)))
    h = U(h * U(0x85EBCA6B))
    h = U(h ^ U(h >> U(13)))
    h = U(h * U(0xC2B2AE35))
    h = U(h ^ U(h >> U(16)))
    return h >= threshold


@njit(**INLINE)
def sigmoid(x):
    """1 / (1 + exp(-x)) by a rational function for tanh(x / 2), which compilers vectorise; the error is below 4e-7.

    The coefficients are those of Eigen's float tanh: an odd polynomial of degree 13 over an even one of degree 6.
    """
    t = min(max(F(0.5) * x, F(-7.90531110763549805)), F(7.90531110763549805))
    s = t * t
    p = F(-2.76076847742355e-16)
    p = p * s + F(2.00018790482477e-13)
    p = p * s + F(-8.60467152213735e-11)
    p = p * s + F(5.12229709037114e-08)
    p = p * s + F(1.48572235717979e-05)
    p = p * s + F(6.37261928875436e-04)
    p = p * s + F(4.89352455891786e-03)
    q = F(1.19825839466702e-06)
    q = q * s + F(1.18534705686654e-04)
    q = q * s + F(2.26843463243900e-03)
    q = q * s + F(4.89352518554385e-03)
    return F(0.5) * (t * p / q) + F(0.5)


@njit(**INLINE)
def moments(row, epsilon):
    """The mean and the inverse standard deviation of a row."""
    total = F(0)
    for c in range(len(row)):
        total += row[c]
    mean = total / F(len(row))
    square = F(0)
    for c in range(len(row)):
        d = row[c] - mean
        square += d * d
    return mean, F(1) / np.sqrt(square / F(len(row)) + epsilon)


# Without reassociation, which would join the two parts of log 2.
@njit(fastmath={"contract", "nnan", "ninf", "nsz", "arcp"}, error_model="numpy", cache=OPTIONS["cache"])
def exponential(values, count, powers, bits):
    """exp of `count` values up to 0, in place. `powers` and `bits` are one buffer, as float32 and as int32."""
    for j in range(count):
        x = max(values[j], F(-87))
        n = np.floor(x * F(1.44269504088896341) + F(0.5))
        bits[j] = np.int32((np.int32(n) + np.int32(127)) << np.int32(23))  # 2^n
        r = (x - n * F(0.693359375)) + n * F(2.12194440e-4)
        p = F(1.9875691500e-4)
        p = p * r + F(1.3981999507e-3)
        p = p * r + F(8.3334519073e-3)
        p = p * r + F(4.1665795894e-2)
        p = p * r + F(1.6666665459e-1)
        p = p * r + F(5.0000001201e-1)
        values[j] = p * r * r + r + F(1)
    for j in range(count):
        values[j] *= powers[j]
