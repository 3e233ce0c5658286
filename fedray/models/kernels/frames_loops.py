"""Loops that write and read padded maps: copy features into them, fill their borders, and pool their frames.

Maps are stored as [B, C, plane]. A plane holds the frames of an utterance with one more frame before and after them,
and one more bin before and after each frame's bins: `pitch` floats a frame. These borders are reflections, which
SpeechBrain's convolutions see around an utterance without a batch. After its frames a plane has spare room.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedray.models.kernels.products import COLUMNS
from fedray.models.kernels.registers import WIDTH, load, store
from fedray.models.kernels.scalars import INLINE, OPTIONS, F

SPARE = COLUMNS + 2  # floats after the frames that loops may read or write


@njit(**OPTIONS)
def framed(features, lengths, out):
    """Features [B, T, bins] -> maps [B, 1, plane]."""
    bins = features.shape[2]
    for b in range(len(features)):
        for t in range(lengths[b]):
            write_frame(features[b, t], 0, out[b, 0], t, bins)
        reflect(out[b], lengths[b], bins)


@njit(**OPTIONS)
def framed_back(gradient, lengths, to_features):
    """The backward pass: changes `gradient`, and sets the features' gradient, with zeros in the padding."""
    bins = to_features.shape[2]
    for b in range(len(to_features)):
        reflect_back(gradient[b], lengths[b], bins)
        for t in range(lengths[b]):
            write_frame_back(gradient[b, 0], t, bins, to_features[b, t], 0)
        to_features[b, lengths[b] :] = F(0)


@njit(**OPTIONS)
def pool_frames(maps, lengths, bins, frames, out):
    """Maxima over `frames` frames: maps [B, C, plane] -> `out` [B, T // frames, bins, C], zeros in the padding."""
    most = np.empty(bins, np.float32)
    for b in range(len(maps)):
        count = lengths[b] // frames
        out[b, count:] = F(0)
        for t in range(count):
            for c in range(out.shape[3]):
                _most(maps[b, c], t * frames, frames, most)
                for f in range(bins):
                    out[b, t, f, c] = most[f]


@njit(**INLINE)
def _most(plane, first, frames, most):
    bins = len(most)
    copy(plane, (first + 1) * (bins + 2) + 1, most, 0, bins)
    for t in range(first + 1, first + frames):
        row = plane[(t + 1) * (bins + 2) + 1 :]
        for f in range(bins):
            most[f] = max(most[f], row[f])


@njit(**OPTIONS)
def pool_frames_back(gradient, maps, lengths, bins, frames, to_maps):
    """The backward pass: the first of the greatest frames gets the gradient, in `to_maps`, which start as zeros."""
    most, left = np.empty((2, bins), np.float32)  # `left`: the gradients of maxima not found yet
    for b in range(len(maps)):
        for t in range(lengths[b] // frames):
            for c in range(gradient.shape[3]):
                _most(maps[b, c], t * frames, frames, most)
                for f in range(bins):
                    left[f] = gradient[b, t, f, c]
                for frame in range(t * frames, (t + 1) * frames):
                    place = (frame + 1) * (bins + 2) + 1
                    row, to = maps[b, c, place : place + bins], to_maps[b, c, place : place + bins]
                    for f in range(bins):
                        to[f] = left[f] * (F(1) if row[f] == most[f] else F(0))
                    for f in range(bins):
                        left[f] -= to[f]


@njit(**INLINE)
def copy(source, first, out, to, count):
    """Copy `count` values from source[first] on to out[to] on."""
    whole = count // WIDTH * WIDTH
    for i in range(0, whole, WIDTH):
        store(out, to + i, load(source, first + i))
    for i in range(whole, count):
        out[to + i] = source[first + i]


@njit(**INLINE)
def write_frame(row, first, plane, t, bins):
    """Write the bins of frame t, which begin at row[first], and their reflections.

    A single bin, which no convolution may follow, reflects itself.
    """
    start = (t + 1) * (bins + 2)
    copy(row, first, plane, start + 1, bins)
    plane[start] = row[first + min(1, bins - 1)]
    plane[start + bins + 1] = row[first + max(bins - 2, 0)]


@njit(**INLINE)
def write_frame_back(gradient, t, bins, out, to):
    """The backward pass of `write_frame`, into `out` from `to` on."""
    start = (t + 1) * (bins + 2)
    copy(gradient, start + 1, out, to, bins)
    out[to + min(1, bins - 1)] += gradient[start]
    out[to + max(bins - 2, 0)] += gradient[start + bins + 1]


@njit(**OPTIONS)
def reflect(maps, length, bins):
    """Write the frames around an utterance's maps [C, plane], and zeros into the spare room after them."""
    pitch = bins + 2
    end = (length + 1) * pitch
    for plane in maps:
        plane[:pitch] = plane[2 * pitch : 3 * pitch]
        plane[end : end + pitch] = plane[end - 2 * pitch : end - pitch]
        plane[end + pitch : end + pitch + SPARE] = F(0)


@njit(**OPTIONS)
def reflect_back(gradient, length, bins):
    """The backward pass: adds the gradients of the frames around to those of their sources, in place."""
    pitch = bins + 2
    end = (length + 1) * pitch
    for plane in gradient:
        plane[2 * pitch : 3 * pitch] += plane[:pitch]
        plane[end - 2 * pitch : end - pitch] += plane[end : end + pitch]
