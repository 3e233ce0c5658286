"""Loops of 2-D convolutions over 3 x 3 with layer norm, leaky ReLU, max pooling of bins and dropout of whole bins.

They take and return padded maps (`frames_loops`): each row of a convolution's right matrix is a plane at an offset.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedray.models.kernels.frames_loops import SPARE, copy, reflect, reflect_back, write_frame, write_frame_back
from fedray.models.kernels.products import ROWS, add_dots, product
from fedray.models.kernels.scalars import INLINE, OPTIONS, F, keeps, moments

EPSILON = F(1e-5)


@njit(**OPTIONS)
def convolve(maps, pitch, lengths, left, bias, sums):
    """Maps [B, C, plane] -> `sums` [B, 4 G, T pitch + ...], whose last two columns of each frame mean nothing.

    `left` [G, 9 C, 4] and `bias` [4 G] are those of `product`, with taps in the order channel, frame, bin.
    """
    offsets = _offsets(maps.shape[1], maps.shape[2], pitch, 0, 1)
    for b in range(len(maps)):
        product(left, maps[b].reshape(-1), offsets, bias, sums[b], lengths[b] * pitch)


@njit(**OPTIONS)
def _offsets(channels, plane, pitch, first, sign):
    """The offsets at which the rows of the right matrix begin, and -1."""
    offsets = np.full(9 * channels + 1, -1)
    for c in range(channels):
        for frame in range(3):
            for column in range(3):
                offsets[9 * c + 3 * frame + column] = c * plane + first + sign * (frame * pitch + column)
    return offsets


@njit(**OPTIONS)
def activate(sums, lengths, weight, bias, slope, pool, means, inverse, out, seed, threshold, scale):
    """Layer norm over channels and bins, leaky ReLU, maximum of `pool` bins, dropout: `sums` -> maps [B, C, plane].

    `weight` and `bias` are [C, bins]; `means` and `inverse` [B, T] are kept for the backward pass. The loops join the
    rows of a frame: its bins alone are too few to vectorise.
    """
    channels, bins = weight.shape
    pooled, w, shift = bins // pool, weight.reshape(-1), bias.reshape(-1)
    row = np.empty(channels * bins, np.float32)
    maxima, kept = np.empty((2, channels * pooled), np.float32)
    for b in range(len(sums)):
        kept_bins(b, pooled, seed, threshold, scale, kept)
        for t in range(lengths[b]):
            for c in range(channels):
                copy(sums[b, c], t * (bins + 2), row, c * bins, bins)
            mean, r = moments(row, EPSILON)
            means[b, t] = mean
            inverse[b, t] = r
            for i in range(len(row)):
                n = (row[i] - mean) * r * w[i] + shift[i]
                row[i] = max(n, n * slope)
            _pool(row, bins, pool, kept, maxima)
            for c in range(channels):
                write_frame(maxima, c * pooled, out[b, c], t, pooled)
        reflect(out[b], lengths[b], pooled)


@njit(**OPTIONS)
def kept_bins(b, bins, seed, threshold, scale, kept):
    """The factors of dropout, which drops a bin of an utterance in all frames and channels, as SpeechBrain's does."""
    for i in range(len(kept)):
        kept[i] = scale if keeps(b * bins + i % bins, seed, threshold) else F(0)


@njit(**INLINE)
def _pool(row, bins, pool, kept, out):
    """Maxima over `pool` bins, one or two, of a row [C bins], times `kept`: `out` [C (bins // pool)]."""
    if pool == 1:
        for i in range(len(out)):
            out[i] = row[i] * kept[i]
    elif bins % 2 == 0:
        for i in range(len(out)):
            out[i] = max(row[2 * i], row[2 * i + 1]) * kept[i]
    else:
        for i in range(len(out)):
            place = 2 * i + i // (bins // 2)
            out[i] = max(row[place], row[place + 1]) * kept[i]


@njit(**OPTIONS)
def block_back(
    gradient, maps, lengths, left, sums, weight, bias, slope, pool, means, inverse,
    to_maps, to_taps, to_conv_bias, to_weight, to_bias, seed, threshold, scale,
):  # fmt: skip
    """The backward pass of `convolve` and `activate`. Changes `gradient`, that of the maps that `activate` returned.

    Sets `to_maps` [B, 4 G, plane], unless it is empty, and `to_conv_bias`; adds to the others. `to_taps` is [channels
    rounded up to a multiple of 4, 9 C]. `left` [G, 9 channels, 4] is the left matrix of the convolution that turns the
    gradient of the sums into that of the maps.
    """
    channels, bins = weight.shape
    pitch = bins + 2
    guard = 2 * pitch + 2  # zeros before each plane of the sums' gradient
    g = np.zeros((len(to_taps), guard + (means.shape[1] + 2) * pitch + SPARE), np.float32)
    forward = _offsets(maps.shape[1], maps.shape[2], pitch, 0, 1)
    back = _offsets(channels, g.shape[1], pitch, guard, -1)
    nothing = np.zeros(ROWS * len(left), np.float32)
    kept = np.empty(channels * (bins // pool), np.float32)
    to_sums = np.zeros(channels * bins, np.float32)
    for b in range(len(maps)):
        length = lengths[b]
        kept_bins(b, bins // pool, seed, threshold, scale, kept)
        reflect_back(gradient[b], length, bins // pool)
        _activate_back(gradient[b], sums[b], length, weight, bias, slope, pool, means[b], inverse[b], kept, g, guard,
                       to_sums, to_weight.reshape(-1), to_bias.reshape(-1))  # fmt: skip
        g[:, guard + length * pitch :] = F(0)
        add_dots(g, guard, maps[b].reshape(-1), forward, length * pitch, to_taps)
        if to_maps.size:
            product(left, g.reshape(-1), back, nothing, to_maps[b], (length + 2) * pitch)
    for c in range(channels):
        to_conv_bias[c] = to_sums[c * bins : (c + 1) * bins].sum()


@njit(**OPTIONS)
def _activate_back(
    gradient, sums, length, weight, bias, slope, pool, means, inverse, kept, out, first, to_sums, to_weight, to_bias
):  # fmt: skip
    """The backward pass of `activate` for one utterance, into `out` from column `first` on.

    Compilers do not vectorise a loop in which many arrays may overlap, so each loop has few.
    """
    channels, bins = weight.shape
    size, pooled, w, shift = channels * bins, bins // pool, weight.reshape(-1), bias.reshape(-1)
    d, n, g, to_maxima = np.empty((4, size), np.float32)
    to_maxima = to_maxima[: channels * pooled]
    for t in range(length):
        mean, r = means[t], inverse[t]
        for c in range(channels):
            copy(sums[c], t * (bins + 2), d, c * bins, bins)
            write_frame_back(gradient[c], t, pooled, to_maxima, c * pooled)
        for i in range(size):
            d[i] = (d[i] - mean) * r
            n[i] = d[i] * w[i] + shift[i]
        _pool_back(to_maxima, n, bins, pool, kept, g)
        one, other = F(0), F(0)
        for i in range(size):
            g[i] *= F(1) if n[i] > F(0) else slope
        for i in range(size):
            to_weight[i] += g[i] * d[i]
            to_bias[i] += g[i]
        for i in range(size):
            g[i] *= w[i]
            one += g[i]
            other += g[i] * d[i]
        one, other = one / F(size), other / F(size)
        for i in range(size):
            g[i] = (g[i] - one - d[i] * other) * r
            to_sums[i] += g[i]
        for c in range(channels):
            start = first + t * (bins + 2)
            copy(g, c * bins, out[c], start, bins)
            out[c, start + bins] = F(0)
            out[c, start + bins + 1] = F(0)


@njit(**INLINE)
def _pool_back(gradient, row, bins, pool, kept, out):
    """The first of the greatest bins gets the gradient, the others get 0."""
    if pool == 1:
        for i in range(len(gradient)):
            out[i] = gradient[i] * kept[i]
    elif bins % 2 == 0:
        for i in range(len(gradient)):
            g = gradient[i] * kept[i]
            first = g * (F(1) if row[2 * i] >= row[2 * i + 1] else F(0))  # a product compiles to no branch
            out[2 * i] = first
            out[2 * i + 1] = g - first
    else:
        out[:] = F(0)
        for i in range(len(gradient)):
            place = 2 * i + i // (bins // 2)
            out[place + (row[place + 1] > row[place])] = gradient[i] * kept[i]
