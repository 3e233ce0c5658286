"""An update as one flat vector: the difference to the broadcast, then the vectors beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedray.core.types import Layer, Update, Vector


@dataclass(frozen=True)
class Packing:
    """The sizes of an update's parts. In the flat vector `delta` comes first, then `vectors` sorted by name.

    The engine checks, sums and holds flat vectors, and strategies see them: vectors take the same way as parameters.
    The flat vector of an update without vectors is its delta.
    """

    delta: int
    vectors: tuple[tuple[str, int], ...] = ()  # name, size

    @classmethod
    def of(cls, update: Update) -> Packing:
        """The lengths of an update's delta and of its vectors, by name."""
        return cls(update.delta.size, tuple((name, update.vectors[name].size) for name in sorted(update.vectors)))

    @property
    def size(self) -> int:
        """Numbers of the flat vector."""
        return self.delta + sum(size for _, size in self.vectors)

    def __str__(self) -> str:
        return f"{self.delta:,} numbers" + "".join(f" and {size:,} of {name}" for name, size in self.vectors)

    def pack(self, delta: Vector, update: Update) -> Vector:
        """The flat vector of `delta` (the update's, which may be clipped by now) and the update's vectors."""
        if not self.vectors:
            return delta
        return np.concatenate([delta, *(update.vectors[name] for name, _ in self.vectors)], dtype=np.float32)

    def unpack(self, flat: Vector) -> tuple[Vector, dict[str, Vector]]:
        """delta and the vectors by name, as views."""
        parts, start = {}, self.delta
        for name, size in self.vectors:
            parts[name] = flat[start : start + size]
            start += size
        return flat[: self.delta], parts

    def layers(self, layers: Sequence[Layer]) -> list[Layer]:
        """The layers of the flat vector: those of delta, cut at its end, and one for each vector."""
        found = [
            Layer(layer.name, layer.start, min(layer.stop, self.delta)) for layer in layers if layer.start < self.delta
        ]
        start = self.delta
        for name, size in self.vectors:
            if size:
                found.append(Layer(f"vectors/{name}", start, start + size))
                start += size
        return found
