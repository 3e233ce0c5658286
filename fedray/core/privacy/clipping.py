"""Clip updates: a bound on the Euclidean norm of the whole update, or of each of its layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedray.core.privacy.settings import ClipSettings
from fedray.core.types import Layer, Vector

ALL = "all"  # the name of the only group, if there is one bound
SAFE = 1 - 1e-6  # keeps a clipped norm below its bound in spite of float32 rounding
Bounds = npt.NDArray[np.float64]  # [groups]
Flags = npt.NDArray[np.bool_]  # [groups]


class Clipping:
    """Splits updates of `size` numbers into groups, each with its bound: one group, or a group for each layer.

    `model`: the layers of the update, which cover it in order; stretches of one name are one layer.
    """

    def __init__(self, settings: ClipSettings, model: Sequence[Layer], size: int) -> None:
        whole = (Layer(ALL, 0, size),)
        stretches = [layer for layer in model if layer.start < min(layer.stop, size)] or whole
        if settings.layers == "global":
            stretches = whole
        self.settings, self.size = settings, size
        self.names = tuple(dict.fromkeys(layer.name for layer in stretches))
        self._places = np.array([*(layer.start for layer in stretches), size])
        self._group = np.array([self.names.index(layer.name) for layer in stretches])

    @property
    def first(self) -> Bounds:
        """The bounds of the first round. The sum of their squares is C^2."""
        if self.settings.layers == "dim":
            sizes = np.bincount(self._group, np.diff(self._places))
            shares: Bounds = np.sqrt(sizes / sizes.sum())
            return self.settings.norm * shares
        return np.full(len(self.names), self.settings.norm / np.sqrt(len(self.names)))

    def norms(self, delta: Vector) -> Bounds:
        """The Euclidean norm of each group."""
        from fedray.core.privacy import loops

        squares = np.zeros(len(self.names))
        loops.add_squares(delta, self._places, self._group, squares)
        return np.sqrt(squares)

    def clip(self, delta: Vector, bounds: Bounds) -> tuple[Vector, Flags]:
        """delta with each group scaled down to its bound if its norm is larger, and which groups were scaled down."""
        norms = self.norms(delta)
        clipped = norms > bounds
        if not clipped.any():
            return delta, clipped
        from fedray.core.privacy import loops

        factors, scaled = np.ones(len(bounds)), np.empty_like(delta)
        np.divide(SAFE * bounds, norms, out=factors, where=clipped)
        loops.scaled(delta, self._places, self._group, factors.astype(np.float32), scaled)
        return scaled, clipped
