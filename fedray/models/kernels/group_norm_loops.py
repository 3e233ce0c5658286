"""Loops of a group norm of maps, and of the ReLU after it.

Maps are frames [T, D C]: a frame is one long row of its bins' channels. The norm is `x scale + shift`, with one scale
and one shift for each channel of a clip. A NaN stays a NaN, so that the loss shows it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedray.models.kernels.scalars import OPTIONS, F

EXACT = OPTIONS | {"fastmath": {"contract"}}
SCALE, SHIFT, MEAN, INVERSE = range(4)  # rows of a norm's factors


@njit(**EXACT)
def moments(sums, weight, bias, groups, epsilon, factors):
    """The factors [4, C] of a group norm of frames [T, D C]: scale, shift, mean and inverse deviation by channel."""
    frames, size = sums.shape
    count, width = sums.size // groups, len(weight) // groups
    total, means = np.zeros((2, size), np.float32)
    for t in range(frames):
        row = sums[t]
        for i in range(size):
            total[i] += row[i]
    found = by_channel(total, len(weight))
    for c in range(0, len(weight), width):
        factors[MEAN, c : c + width] = found[c : c + width].sum() / count
    spread(factors[MEAN], means)
    total[:] = F(0)
    for t in range(frames):
        row = sums[t]
        for i in range(size):
            total[i] += (row[i] - means[i]) * (row[i] - means[i])
    found = by_channel(total, len(weight))
    for c in range(0, len(weight), width):
        factors[INVERSE, c : c + width] = 1 / np.sqrt(found[c : c + width].sum() / count + epsilon)
    for c in range(len(weight)):
        factors[SCALE, c] = factors[INVERSE, c] * weight[c]
        factors[SHIFT, c] = bias[c] - factors[MEAN, c] * factors[SCALE, c]


@njit(**EXACT)
def by_channel(row, channels):
    """The sums of a frame [D C] over its bins, in float64."""
    found = np.zeros(channels)
    for start in range(0, len(row), channels):
        for c in range(channels):
            found[c] += row[start + c]
    return found


@njit(**EXACT)
def spread(values, row):
    """Repeat the value of each channel for each bin of a frame."""
    for start in range(0, len(row), len(values)):
        row[start : start + len(values)] = values


@njit(**EXACT)
def scaling(factors, size):
    """The scale and the shift of each value of a frame [size]."""
    scale, shift = np.empty((2, size), np.float32)
    spread(factors[SCALE], scale)
    spread(factors[SHIFT], shift)
    return scale, shift


@njit(**EXACT)
def norm(row, scale, shift, out):
    """The norm of one frame."""
    for i in range(len(row)):
        out[i] = row[i] * scale[i] + shift[i]


@njit(**EXACT)
def norm_relu(sums, factors, out):
    """ReLU of the norm of frames [T, D C]."""
    frames, size = sums.shape
    scale, shift = scaling(factors, size)
    for t in range(frames):
        row, to = sums[t], out[t]
        for i in range(size):
            n = row[i] * scale[i] + shift[i]
            to[i] = F(0) if n <= F(0) else n


@njit(**EXACT)
def relu_back(hidden, gradient):
    """Set the gradient to 0 where the ReLU's output is 0. A product compiles to no branch."""
    for i in range(len(hidden)):
        gradient[i] *= F(1) if hidden[i] > F(0) else F(0)


@njit(**EXACT)
def norm_back(sums, weight, factors, groups, gradient, found):
    """Turns the gradient [T, D C] of the norm of `sums` into that of `sums`, in place.

    Adds to `found` [3, C] the gradients of weight and bias, and of the bias of the layer before.
    """
    (frames, size), channels = sums.shape, len(weight)
    count, width = sums.size // groups, channels // groups
    one, other = np.zeros((2, size), np.float32)
    for t in range(frames):
        g, row = gradient[t], sums[t]
        for i in range(size):
            one[i] += g[i]
        for i in range(size):
            other[i] += g[i] * row[i]
    ones, others = by_channel(one, channels), by_channel(other, channels)
    slope, offset = np.empty((2, channels), np.float32)
    for start in range(0, channels, width):
        mean, inverse = np.float64(factors[MEAN, start]), np.float64(factors[INVERSE, start])
        a, b = 0.0, 0.0
        for c in range(start, start + width):
            with_norm = (others[c] - mean * ones[c]) * inverse
            found[0, c] += with_norm
            found[1, c] += ones[c]
            a += ones[c] * weight[c] / count
            b += with_norm * weight[c] / count
        slope[start : start + width] = -inverse * inverse * b
        offset[start : start + width] = inverse * (mean * inverse * b - a)
    scale, by, plus, sums_of = np.zeros((4, size), np.float32)
    spread(factors[SCALE], scale)
    spread(slope, by)
    spread(offset, plus)
    for t in range(frames):
        g, row = gradient[t], sums[t]
        for i in range(size):
            g[i] = scale[i] * g[i] + by[i] * row[i] + plus[i]
        for i in range(size):
            sums_of[i] += g[i]
    found[2] += by_channel(sums_of, channels)
