"""Loops of the Conformer's convolutions: the gated depthwise one, and frames laid side by side for the front."""

from __future__ import annotations

import numpy as np
from numba import njit

from fedray.models.kernels.scalars import OPTIONS, F, keeps, moments, sigmoid

EPSILON = F(1e-5)


@njit(**OPTIONS)
def gate(halves, lengths, out, pad):
    """Gated linear units of [B, T, 2 D] into the middle of `out` [B, T + 2 pad, D]; zeros around and in the padding."""
    batch, width = len(halves), halves.shape[2] // 2
    for b in range(batch):
        count = lengths[b]
        out[b, :pad] = F(0)
        for t in range(count):
            row, to = halves[b, t], out[b, pad + t]
            for c in range(width):
                to[c] = row[c] * sigmoid(row[width + c])
        out[b, pad + count :] = F(0)


@njit(**OPTIONS)
def depthwise(frames, taps, bias, weight, shift, lengths, sums, means, inverse, out):
    """Depthwise convolution, layer norm and SiLU: frames [B, T + K - 1, D] -> `out` [B, T, D], zeros in the padding.

    `taps` [K, D] and `bias` are the convolution's, `weight` and `shift` the layer norm's; `sums` keeps its input.
    """
    batch, time, width = out.shape
    kernel = taps.shape[0]
    for b in range(batch):
        for t in range(time):
            to = out[b, t]
            if t >= lengths[b]:
                to[:] = F(0)
                continue
            z = sums[b, t]
            z[:] = bias
            for k in range(kernel):
                frame, tap = frames[b, t + k], taps[k]
                for c in range(width):
                    z[c] += frame[c] * tap[c]
            mean, r = moments(z, EPSILON)
            means[b, t] = mean
            inverse[b, t] = r
            for c in range(width):
                n = (z[c] - mean) * r * weight[c] + shift[c]
                to[c] = n * sigmoid(n)


@njit(**OPTIONS)
def depthwise_back(
    gradient,
    frames,
    taps,
    weight,
    shift,
    lengths,
    sums,
    means,
    inverse,
    to_taps,
    to_bias,
    to_weight,
    to_shift,
    to_frames,
):
    """The backward pass of `depthwise`: adds to the gradients `to_...`, which start as zeros."""
    batch, time, width = gradient.shape
    kernel = taps.shape[0]
    g = np.empty(width, np.float32)
    for b in range(batch):
        for t in range(lengths[b]):
            z, mean, r = sums[b, t], means[b, t], inverse[b, t]
            first = F(0)
            second = F(0)
            for c in range(width):
                d = (z[c] - mean) * r
                n = d * weight[c] + shift[c]
                s = sigmoid(n)
                e = gradient[b, t, c] * s * (F(1) + n * (F(1) - s))
                to_weight[c] += e * d
                to_shift[c] += e
                e *= weight[c]
                first += e
                second += e * d
                g[c] = e
            first = first / F(width)
            second = second / F(width)
            for c in range(width):
                g[c] = (g[c] - first - (z[c] - mean) * r * second) * r
                to_bias[c] += g[c]
            for k in range(kernel):
                frame, tap, to_frame, to_tap = frames[b, t + k], taps[k], to_frames[b, t + k], to_taps[k]
                for c in range(width):
                    to_tap[c] += g[c] * frame[c]
                    to_frame[c] += g[c] * tap[c]


@njit(**OPTIONS)
def gate_back(gradient, halves, lengths, pad, to_halves):
    """The backward pass of `gate`: `gradient` [B, T + 2 pad, D] -> `to_halves` [B, T, 2 D], zeros in the padding."""
    batch, width = len(halves), halves.shape[2] // 2
    for b in range(batch):
        for t in range(lengths[b]):
            row, g, to = halves[b, t], gradient[b, pad + t], to_halves[b, t]
            for c in range(width):
                s = sigmoid(row[width + c])
                to[c] = g[c] * s
                to[width + c] = g[c] * row[c] * s * (F(1) - s)
        to_halves[b, lengths[b] :] = F(0)


@njit(**OPTIONS)
def add_dropout_frames(x, change, lengths, seed, threshold, scale):
    """`add_dropout` of [B, T, D] in which padding frames add nothing."""
    batch, time, width = x.shape
    for b in range(batch):
        for t in range(time):
            start = (b * time + t) * width
            row, to = x[b, t], change[b, t]
            if t < lengths[b]:
                for c in range(width):
                    to[c] = row[c] + to[c] * (scale if keeps(start + c, seed, threshold) else F(0))
            else:
                to[:] = row


@njit(**OPTIONS)
def dropout_frames(x, out, lengths, seed, threshold, scale):
    """`dropout` of [B, T, D] with zeros in the padding."""
    batch, time, width = x.shape
    for b in range(batch):
        for t in range(time):
            start = (b * time + t) * width
            row, to = x[b, t], out[b, t]
            if t < lengths[b]:
                for c in range(width):
                    to[c] = row[c] * (scale if keeps(start + c, seed, threshold) else F(0))
            else:
                to[:] = F(0)


@njit(**OPTIONS)
def beside(x, lengths, out):
    """Lay three frames side by side around every second frame: [B, T, C] -> `out` [B, ceil(T / 2), 3 C].

    The ends are reflected: the second frame precedes the first one, the last but one follows an utterance's last one.
    """
    batch, time, width = x.shape
    for b in range(batch):
        last = lengths[b] - 1
        for t in range(out.shape[1]):
            for k in range(3):
                frame = abs(2 * t + k - 1)
                frame = last - 1 if frame == last + 1 else min(frame, time - 1)
                out[b, t, k * width : (k + 1) * width] = x[b, frame]


@njit(**OPTIONS)
def beside_back(gradient, lengths, to_x):
    """The backward pass of `beside`: adds to `to_x`."""
    batch, time, width = to_x.shape
    for b in range(batch):
        last = lengths[b] - 1
        for t in range(gradient.shape[1]):
            for k in range(3):
                frame = abs(2 * t + k - 1)
                frame = last - 1 if frame == last + 1 else min(frame, time - 1)
                for c in range(width):
                    to_x[b, frame, c] += gradient[b, t, k * width + c]


@njit(**OPTIONS)
def norm_leaky_dropout(x, weight, bias, slope, means, inverse, out, seed, threshold, scale):
    """Dropout of the leaky ReLU of the layer norm of rows."""
    rows, width = x.shape
    for row in range(rows):
        mean, r = moments(x[row], EPSILON)
        means[row] = mean
        inverse[row] = r
        for c in range(width):
            n = (x[row, c] - mean) * r * weight[c] + bias[c]
            n = n if n > F(0) else n * slope
            out[row, c] = n * (scale if keeps(row * width + c, seed, threshold) else F(0))


@njit(**OPTIONS)
def norm_leaky_dropout_back(
    gradient, x, weight, bias, slope, means, inverse, to_x, to_weight, to_bias, seed, threshold, scale
):
    """The backward pass: sets `to_x`, adds to `to_weight` and `to_bias`."""
    rows, width = x.shape
    g = np.empty(width, np.float32)
    for row in range(rows):
        mean, r = means[row], inverse[row]
        first = F(0)
        second = F(0)
        for c in range(width):
            d = (x[row, c] - mean) * r
            n = d * weight[c] + bias[c]
            e = gradient[row, c] * (scale if keeps(row * width + c, seed, threshold) else F(0))
            e = e if n > F(0) else e * slope
            to_weight[c] += e * d
            to_bias[c] += e
            e *= weight[c]
            first += e
            second += e * d
            g[c] = e
        first = first / F(width)
        second = second / F(width)
        for c in range(width):
            to_x[row, c] = (g[c] - first - (x[row, c] - mean) * r * second) * r
