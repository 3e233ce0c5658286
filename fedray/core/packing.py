"""An update as one flat vector: the difference from the broadcast, then the update's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedray.core.types import Layer, Update, Vector


@dataclass(frozen=True)
class Packing:
    """The sizes of an update's parts. In the flat vector `delta` comes first, then `vectors` sorted by name.

    The engine checks, sums and holds flat vectors, and strategies see them: vectors are treated like parameters.
    The flat vector of an update without vectors is its delta.
    """

    delta: int
    vectors: tuple[tuple[str, int], ...] = ()  # name, size

    @classmethod
    def of(cls, update: Update) -> Packing:
        """The packing of an update, from the sizes of its delta and of its vectors."""
        return cls(update.delta.size, tuple((name, update.vectors[name].size) for name in sorted(update.vectors)))

    @property
    def size(self) -> int:
        """How many numbers the flat vector has."""
        return self.delta + sum(size for _, size in self.vectors)

    def __str__(self) -> str:
        return f"{self.delta:,} numbers" + "".join(f" and {size:,} of {name}" for name, size in self.vectors)

    def pack(self, delta: Vector, update: Update) -> Vector:
        """Join `delta` (the update's, possibly clipped) and the update's vectors into the flat vector."""
        if not self.vectors:
            return delta
        return np.concatenate([delta, *(update.vectors[name] for name, _ in self.vectors)], dtype=np.float32)

    def unpack(self, flat: Vector) -> tuple[Vector, dict[str, Vector]]:
        """Split a flat vector into delta and the vectors by name, as views."""
        parts, start = {}, self.delta
        for name, size in self.vectors:
            parts[name] = flat[start : start + size]
            start += size
        return flat[: self.delta], parts

    def layers(self, layers: Sequence[Layer]) -> list[Layer]:
        """The layers of the flat vector: delta's layers, cut at its end, and one for each vector."""
        found = [
            Layer(layer.name, layer.start, min(layer.stop, self.delta)) for layer in layers if layer.start < self.delta
        ]
        start = self.delta
        for name, size in self.vectors:
            if size:
                found.append(Layer(f"vectors/{name}", start, start + size))
                start += size
        return found
