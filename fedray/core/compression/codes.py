"""Codes for the vectors that travel. The number of bytes follows from the vector's shape alone.

`shape` holds the sizes of the tensors that a vector consists of, in order. (n,) is one tensor of n numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedray.core.types import Vector

Shape = tuple[int, ...]
Sizes = npt.NDArray[np.int64]


class Code(ABC):
    """A way to write a finite vector as bytes. Abstract."""

    exact: ClassVar[bool] = False  # whether every number comes back as it was

    @abstractmethod
    def size(self, shape: Shape) -> int:
        """Encoded bytes of a vector of this shape."""

    @abstractmethod
    def encode(self, vector: Vector, shape: Shape, generator: np.random.Generator | None = None) -> bytes:
        """Encode a vector [sum(shape)] in `size(shape)` bytes.

        A code with steps rounds to the nearest step; with a generator it rounds up or down at random, without bias.
        """

    @abstractmethod
    def decode(self, data: bytes, shape: Shape) -> Vector:
        """Decode a vector [sum(shape)]; the result may be written to."""


@dataclass(frozen=True)
class Float32(Code):
    """4 bytes per number: nothing is lost."""

    exact = True

    def size(self, shape: Shape) -> int:
        return 4 * sum(shape)

    def encode(self, vector: Vector, shape: Shape, generator: np.random.Generator | None = None) -> bytes:
        return vector.tobytes()

    def decode(self, data: bytes, shape: Shape) -> Vector:
        return np.frombuffer(data, np.float32).copy()


@dataclass(frozen=True)
class Half(Code):
    """2 bytes per number: half precision, rounded to the nearest. Numbers above 65,504 become infinite."""

    def size(self, shape: Shape) -> int:
        return 2 * sum(shape)

    def encode(self, vector: Vector, shape: Shape, generator: np.random.Generator | None = None) -> bytes:
        with np.errstate(over="ignore"):
            return vector.astype(np.float16).tobytes()

    def decode(self, data: bytes, shape: Shape) -> Vector:
        return np.frombuffer(data, np.float16).astype(np.float32)


class Steps(Code):
    """Whole numbers of steps from -most to most, in blocks; a block's largest number is `most` steps. Abstract.

    Each block has a scale, the size of its step. No block spans two tensors: the gains of a layer norm, near 1, would
    leave about one step for the biases in the same block.
    QSGD (Alistarh, Grubic, Li, Tomioka, Vojnovic, NeurIPS 2017) rounds without bias in the same way.
    """

    most: ClassVar[int]
    block: ClassVar[int]  # the most numbers that share a scale

    @abstractmethod
    def pack(self, numbers: npt.NDArray[np.int8]) -> npt.NDArray[np.generic]:
        """Pack whole numbers as they travel."""

    @abstractmethod
    def unpack(self, data: bytes, count: int) -> npt.NDArray[np.int8]:
        """Unpack `count` whole numbers."""

    def encode(self, vector: Vector, shape: Shape, generator: np.random.Generator | None = None) -> bytes:
        starts, lengths = blocks(shape, self.block)
        if not vector.size:
            return b""
        most = np.float32(self.most)
        limit = np.nextafter(np.finfo(np.float32).max / most, np.float32(0))  # `most` steps of this size are finite
        scales = np.minimum(np.maximum.reduceat(np.abs(vector), starts) / most, limit)
        steps = vector / np.repeat(np.where(scales > 0, scales, np.float32(1)), lengths)
        if generator is None:
            np.rint(steps, out=steps)
        else:
            steps += generator.random(steps.size, np.float32)
            np.floor(steps, out=steps)
        np.clip(steps, -self.most, self.most, out=steps)  # the division may round the largest number upwards
        return scales.tobytes() + self.pack(steps.astype(np.int8)).tobytes()

    def decode(self, data: bytes, shape: Shape) -> Vector:
        starts, lengths = blocks(shape, self.block)
        scales = np.frombuffer(data, np.float32, len(starts))
        found = self.unpack(data[scales.nbytes :], sum(shape)).astype(np.float32)
        found *= np.repeat(scales, lengths)
        return found


@dataclass(frozen=True)
class Int8(Steps):
    """1 byte per number, -127 to 127, and 4 bytes per block of at most 1,024 numbers of a tensor."""

    most = 127
    block = 1024

    def size(self, shape: Shape) -> int:
        return sum(shape) + 4 * len(blocks(shape, self.block)[0])

    def pack(self, numbers: npt.NDArray[np.int8]) -> npt.NDArray[np.generic]:
        return numbers

    def unpack(self, data: bytes, count: int) -> npt.NDArray[np.int8]:
        return np.frombuffer(data, np.int8, count)


@dataclass(frozen=True)
class Int4(Steps):
    """Half a byte per number, -7 to 7, and 4 bytes per block of at most 256 numbers of a tensor."""

    most = 7
    block = 256

    def size(self, shape: Shape) -> int:
        return (sum(shape) + 1) // 2 + 4 * len(blocks(shape, self.block)[0])

    def pack(self, numbers: npt.NDArray[np.int8]) -> npt.NDArray[np.generic]:
        low, high = np.append(numbers, np.int8(0))[: len(numbers) + len(numbers) % 2].reshape(-1, 2).T
        return (low & 15) | (high << 4)

    def unpack(self, data: bytes, count: int) -> npt.NDArray[np.int8]:
        pairs = np.frombuffer(data, np.int8, (count + 1) // 2)
        return np.stack([pairs << 4 >> 4, pairs >> 4], axis=1).reshape(-1)[:count]


@lru_cache(maxsize=64)
def blocks(shape: Shape, block: int) -> tuple[Sizes, Sizes]:
    """Starts and lengths of the blocks: each tensor is cut into blocks of `block` numbers; its last may be shorter."""
    starts: list[int] = []
    end = 0
    for size in shape:
        starts += range(end, end + size, block)
        end += size
    found = np.array(starts, np.int64)
    return found, np.diff(found, append=end)
