"""Count sketches of updates: a few thousand numbers that keep what an attacker needs, so that no update has to travel.

Each number of a layer is added to one of the layer's buckets, with a random sign. Inner products of two updates are
kept on average, with a variance of at most 2 |x|^2 |y|^2 / buckets (Charikar, Chen, Farach-Colton. Finding Frequent
Items in Data Streams. ICALP 2002; Weinberger et al. Feature Hashing for Large Scale Multitask Learning. ICML 2009).
Sketches are linear: the sketch of a sum is the sum of sketches.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedray.core.seeds import Name, numpy_generator
from fedray.core.types import Layer, Vector

BUCKETS = 4096  # of all layers together; at least one for each
CHUNK = 1 << 20  # numbers whose buckets and signs are in memory at once
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sketch:
    """What is kept of an update: float32 [buckets], the Euclidean norm of each layer, and its log-weight in a sum."""

    buckets: Vector
    norms: Vector  # [layers]
    log_weight: float = 0.0


@dataclass(frozen=True)
class Layout:
    """Where the buckets of each layer are, and how many numbers fall into each of them.

    Normal noise in each number of an update is normal noise in its sketch, of `numbers` times the variance.
    """

    edges: Places  # [layers + 1]
    numbers: Places  # [buckets]


@dataclass(frozen=True)
class Sketcher:
    """Sketches of updates that consist of these layers. `seed` names the buckets and signs of all numbers."""

    layers: tuple[Layer, ...]  # they cover the update in order
    seed: Name
    buckets: int = BUCKETS

    @functools.cached_property
    def widths(self) -> list[int]:
        """The number of buckets of each layer. Layers with fewer numbers than an equal share keep every number."""
        sizes, left = [layer.stop - layer.start for layer in self.layers], self.buckets
        widths = [0] * len(sizes)
        for done, place in enumerate(sorted(range(len(sizes)), key=lambda place: sizes[place])):
            widths[place] = min(sizes[place], max(1, left // (len(sizes) - done)))
            left -= widths[place]
        return widths

    @functools.cached_property
    def layout(self) -> Layout:
        """The buckets of all layers."""
        return Layout(np.cumsum([0, *self.widths]), np.concatenate([*map(self._numbers, self.layers, self.widths)]))

    def sketch(self, update: Vector, log_weight: float = 0.0) -> Sketch:
        """The sketch of an update, float32 [size]."""
        parts, norms = list[npt.NDArray[np.float64]](), list[float]()
        for layer, width in zip(self.layers, self.widths, strict=True):
            numbers = update[layer.start : layer.stop]
            norms.append(float(np.sqrt(np.square(numbers, dtype=np.float64).sum())))
            if width == len(numbers):
                parts.append(numbers.astype(np.float64))
                continue
            found = np.zeros(width)
            for start, places, signs in self._hashed(layer, width):
                chunk = update[start : start + len(places)]
                found += np.bincount(places, weights=signs * chunk, minlength=width)
            parts.append(found)
        return Sketch(np.concatenate(parts).astype(np.float32), np.array(norms, np.float32), log_weight)

    def _numbers(self, layer: Layer, width: int) -> Places:
        """How many numbers of a layer fall into each of its buckets, [width]."""
        if width == layer.stop - layer.start:
            return np.ones(width, np.int64)
        found = np.zeros(width, np.int64)
        for _, places, _ in self._hashed(layer, width):
            found += np.bincount(places, minlength=width)
        return found

    def _hashed(self, layer: Layer, width: int) -> Iterator[tuple[int, Places, Vector]]:
        """Yield (start, the bucket of each number, its sign) chunk by chunk."""
        for start in range(layer.start, layer.stop, CHUNK):
            size, generator = min(CHUNK, layer.stop - start), numpy_generator(self.seed, "sketch", start)
            places = generator.integers(0, width, size)
            yield start, places, generator.integers(0, 2, size).astype(np.float32) * 2 - 1


def sketcher(layers: Sequence[Layer], seed: Name) -> Sketcher:
    """The sketcher of these layers, without empty ones."""
    return Sketcher(tuple(layer for layer in layers if layer.stop > layer.start), seed)
