"""The loops of `separable`: a block of FedSTAR's network, one clip after the other, while its maps are in the cache.

Maps are [frames, bins, channels]: a frame is one long row of its bins' channels. A NaN stays a NaN.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedray.models.kernels.frames_loops import copy
from fedray.models.kernels.group_norm_loops import EXACT, moments, norm, norm_back, norm_relu, relu_back, scaling
from fedray.models.kernels.matrices import product
from fedray.models.kernels.scalars import INLINE, F

TAPS, BEFORE = 4, 1  # of a convolution, and those before its middle: "same" padding as TensorFlow's


@njit(**EXACT)
def forward(
    maps, taps, b_time, b_frequency, weight, bias, joint, b_joint, last, b_last, kept, groups, epsilon, room, out
):
    """Maps [B, T, D, C] -> `out` [B, T // 2, D // 2, F]. `room` keeps what the backward pass needs: see `parts`.

    `taps` are [2, 4 C, F], tap by tap, and `joint` is [2 F, F]; `weight` and `bias` [2 F] are those of the first norm,
    `last` and `b_last` [F] of the second. `groups`: groups for every F channels. `kept` [B, F] are dropout's factors.
    """
    batch, frames, bins, channels = maps.shape
    near, both, hidden, joined, factors, at_last = parts(room, batch, frames * bins, channels, len(last))
    for b in range(batch):
        beside(maps[b], near[0, b], near[1, b])
        product(near[0, b], taps[0], b_time, both[b], 0)
        product(near[1, b], taps[1], b_frequency, both[b], len(last))
        moments(rows(both[b], bins), weight, bias, 2 * groups, epsilon, factors[b])
        norm_relu(rows(both[b], bins), factors[b], rows(hidden[b], bins))
        product(hidden[b], joint, b_joint, joined[b], 0)
        moments(rows(joined[b], bins), last, b_last, groups, epsilon, at_last[b])
        pool(rows(joined[b], bins), at_last[b], kept[b], out[b])


@njit(**EXACT)
def backward(
    gradient, frames, bins, taps, weight, joint, last, kept, groups, room, to_taps, to_norm, to_joint, to_last, to_maps
):  # fmt: skip
    """The backward pass: sets `to_taps` [2, F, 4 C], `to_joint` [F, 2 F] and `to_maps`, unless that is empty.

    Adds to `to_norm` [3, 2 F] and `to_last` [3, F] the gradients of a norm's weight and bias, and of the bias of the
    convolutions before the norm.
    """
    batch, filters, channels, places = len(kept), len(last), taps.shape[1] // TAPS, frames * bins
    near, both, hidden, joined, factors, at_last = parts(room, batch, places, channels, filters)
    nothing = np.empty(0, np.float32)
    to_near = np.empty((2, places, TAPS * channels), np.float32)
    to_both = np.empty((batch, places, 2 * filters), np.float32)
    to_joined = np.empty((batch, places, filters), np.float32)
    for b in range(batch):
        pool_back(gradient[b], rows(joined[b], bins), at_last[b], kept[b], rows(to_joined[b], bins))
        norm_back(rows(joined[b], bins), last, at_last[b], groups, rows(to_joined[b], bins), to_last)
        product(to_joined[b], joint.T, nothing, to_both[b], 0)
        relu_back(hidden[b].reshape(-1), to_both[b].reshape(-1))
        norm_back(rows(both[b], bins), weight, factors[b], 2 * groups, rows(to_both[b], bins), to_norm)
        if to_maps.size:
            for way in range(2):
                own = to_both[b][:, way * filters : (way + 1) * filters]
                product(own, taps[way].T, nothing, to_near[way], 0)
            add_beside(to_near[0], to_near[1], to_maps[b])
    product(to_joined.reshape(-1, filters).T, hidden.reshape(-1, 2 * filters), nothing, to_joint, 0)
    for way in range(2):
        own = to_both.reshape(-1, 2 * filters)[:, way * filters : (way + 1) * filters]
        product(own.T, near[way].reshape(-1, TAPS * channels), nothing, to_taps[way], 0)


def room_of(batch, places, channels, filters):
    """The number of floats in `room`."""
    return batch * (places * (2 * TAPS * channels + 5 * filters) + 12 * filters)


@njit(**EXACT)
def parts(room, batch, places, channels, filters):
    """The parts of `room`: near, both, hidden, joined, and the factors of the two norms.

    near [2, B, P, 4 C]: the inputs of the convolutions over time and over frequency at each place; both and hidden
    [B, P, 2 F]: the first norm's input, and the output of the ReLU after it; joined [B, P, F]: the second norm's
    input; factors [B, 4, 2 F] and [B, 4, F].
    """
    one = batch * places * filters
    near = 2 * batch * places * TAPS * channels
    both, hidden, joined, factors = near + 2 * one, near + 4 * one, near + 5 * one, near + 5 * one + 8 * batch * filters
    return (
        room[:near].reshape(2, batch, places, TAPS * channels),
        room[near:both].reshape(batch, places, 2 * filters),
        room[both:hidden].reshape(batch, places, 2 * filters),
        room[hidden:joined].reshape(batch, places, filters),
        room[joined:factors].reshape(batch, 4, 2 * filters),
        room[factors:].reshape(batch, 4, filters),
    )


@njit(**EXACT)
def rows(places, bins):
    """Places [T D, C] as frames [T, D C]."""
    return places.reshape(len(places) // bins, -1)


@njit(**EXACT)
def beside(maps, time, frequency):
    """Lay the four places over time, and over frequency, around each one side by side: [T, D, C] -> two [T D, 4 C]."""
    frames, bins, channels = maps.shape
    flat, over_time, over_bins = maps.reshape(-1), time.reshape(-1), frequency.reshape(-1)
    over_time[:] = F(0)
    over_bins[:] = F(0)
    for t in range(frames):
        for d in range(bins):
            place = (t * bins + d) * channels
            for k in range(TAPS):
                if 0 <= t + k - BEFORE < frames:
                    copy(flat, place + (k - BEFORE) * bins * channels, over_time, TAPS * place + k * channels, channels)
            first, end = max(d - BEFORE, 0), min(d - BEFORE + TAPS, bins)
            behind = first - (d - BEFORE)  # taps before the first bin
            start = (t * bins + first) * channels
            copy(flat, start, over_bins, TAPS * place + behind * channels, (end - first) * channels)


@njit(**EXACT)
def add_beside(time, frequency, to_maps):
    """The backward pass of `beside`: sets `to_maps` [T, D, C]."""
    frames, bins, channels = to_maps.shape
    to_maps[:] = F(0)
    for t in range(frames):
        for d in range(bins):
            to, place = to_maps[t, d], t * bins + d
            for k in range(TAPS):
                frame, bin = t + BEFORE - k, d + BEFORE - k
                if 0 <= frame < frames:
                    g = time[frame * bins + d, k * channels : (k + 1) * channels]
                    for c in range(channels):
                        to[c] += g[c]
                if 0 <= bin < bins:
                    g = frequency[place + BEFORE - k, k * channels : (k + 1) * channels]
                    for c in range(channels):
                        to[c] += g[c]


@njit(**INLINE | {"fastmath": False})
def greater(one, other):
    """The greater one; `other` if either is NaN."""
    return one if other <= one else other


@njit(**EXACT)
def pool(sums, factors, kept, out):
    """Maxima over 2 x 2 places of the norm of frames [T, D F], ReLU, times `kept` [F]: [T // 2, D // 2, F]."""
    frames, bins, filters = out.shape
    scale, shift = scaling(factors, sums.shape[1])
    one, two = np.empty((2, sums.shape[1]), np.float32)
    for t in range(frames):
        norm(sums[2 * t], scale, shift, one)
        norm(sums[2 * t + 1], scale, shift, two)
        for d in range(bins):
            to, left, right = out[t, d], 2 * d * filters, (2 * d + 1) * filters
            for c in range(filters):
                most = greater(greater(one[left + c], one[right + c]), greater(two[left + c], two[right + c]))
                to[c] = (F(0) if most <= F(0) else most) * kept[c]


@njit(**EXACT)
def pool_back(gradient, sums, factors, kept, to_norm):
    """The backward pass of `pool`, to the norm's output `to_norm` [T, D F]: the first greatest place gets all of it."""
    frames, bins, filters = gradient.shape
    scale, shift = scaling(factors, sums.shape[1])
    one, two = np.empty((2, sums.shape[1]), np.float32)
    to_norm[2 * frames :] = F(0)
    for t in range(frames):
        norm(sums[2 * t], scale, shift, one)
        norm(sums[2 * t + 1], scale, shift, two)
        for d in range(bins):
            g, left, right = gradient[t, d], 2 * d * filters, (2 * d + 1) * filters
            for c in range(filters):
                most = greater(greater(one[left + c], one[right + c]), greater(two[left + c], two[right + c]))
                rest = g[c] * kept[c] * (F(1) if most > F(0) else F(0))
                first = rest * (F(1) if one[left + c] == most else F(0))
                rest -= first
                second = rest * (F(1) if one[right + c] == most else F(0))
                rest -= second
                third = rest * (F(1) if two[left + c] == most else F(0))
                one[left + c], one[right + c], two[left + c], two[right + c] = first, second, third, rest - third
        one[2 * bins * filters :] = F(0)  # an odd last bin, which pooling drops
        two[2 * bins * filters :] = F(0)
        to_norm[2 * t] = one
        to_norm[2 * t + 1] = two
