"""One direction between server and clients, and the bytes that travel in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedray.core.compression.codes import Code, Shape
from fedray.core.types import Vector

TOO_LARGE = "too large for its encoding (half precision ends at 65,504)"


@dataclass(frozen=True)
class Link:
    """Encodes the tensors at the start of a vector; the numbers after them travel as they are.

    Those numbers are running statistics of batch norm: a variance that a code rounds to 0 or below would break the
    model. `tensors`: sizes, as `Algorithm.tensors` gives them. A shorter vector counts as one tensor, as does every
    vector if `tensors` is None.
    """

    code: Code
    tensors: Shape | None = None

    def size(self, numbers: int) -> int:
        """Encoded bytes of a vector of so many numbers."""
        shape, rest = self._parts(numbers)
        return self.code.size(shape) + 4 * rest

    def encode(self, vector: Vector, generator: np.random.Generator | None = None) -> bytes:
        """Encode a finite vector in `size(vector.size)` bytes; `generator`: as in `Code.encode`."""
        shape, rest = self._parts(vector.size)
        end = vector.size - rest
        return self.code.encode(vector[:end], shape, generator) + vector[end:].tobytes()

    def decode(self, data: bytes, numbers: int) -> Vector:
        """Decode a vector of so many numbers."""
        shape, rest = self._parts(numbers)
        end = len(data) - 4 * rest
        return np.concatenate([self.code.decode(data[:end], shape), np.frombuffer(data[end:], np.float32)])

    def _parts(self, numbers: int) -> tuple[Shape, int]:
        """The shape of the encoded tensors, and how many numbers follow them."""
        if self.tensors is None or sum(self.tensors) > numbers:
            return (numbers,), 0
        return self.tensors, numbers - sum(self.tensors)


def traffic(up: Code, down: Code, numbers: int, tensors: Sequence[int] | None = None) -> tuple[int, int]:
    """Bytes (up, down) of one client's update and of one broadcast of so many parameters.

    `up`: `config.upload.code`; `down`: `config.download`; `tensors`: from `Algorithm.tensors`. Scalars are not counted:
    each number in a client's report and each setting of a broadcast has 8 bytes.
    """
    shape = None if tensors is None else tuple(tensors)
    return Link(up, shape).size(numbers), Link(down, shape).size(numbers)
