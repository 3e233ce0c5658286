"""Top-k: the largest numbers of a vector with their positions; the others count as 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedray.core.compression.codes import Code, Float32, Shape
from fedray.core.types import Vector

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TopK(Code):
    """The k numbers largest in absolute value, in the code `values`; k is `share` of all. Of equal ones the first."""

    share: float = 0.05
    values: Code = Float32()

    def kept(self, numbers: int) -> int:
        """k for a vector of so many numbers, at least 1."""
        return min(numbers, max(1, round(self.share * numbers)))

    def size(self, shape: Shape) -> int:
        count = sum(shape)
        kept = self.kept(count)
        return positions_size(kept, count) + self.values.size((kept,))

    def encode(self, vector: Vector, shape: Shape, generator: np.random.Generator | None = None) -> bytes:
        chosen = largest(vector, self.kept(vector.size))
        positions = encode_positions(chosen, vector.size)
        return positions + self.values.encode(vector[chosen], (len(chosen),))

    def decode(self, data: bytes, shape: Shape) -> Vector:
        found = np.zeros(sum(shape), np.float32)
        kept = self.kept(found.size)
        end = positions_size(kept, found.size)
        found[decode_positions(data[:end], kept, found.size)] = self.values.decode(data[end:], (kept,))
        return found


def largest(vector: Vector, count: int) -> Positions:
    """The positions of the `count` largest absolute values, ascending.

    A threshold selects them: which of several equal values `argpartition` takes depends on the processor.
    """
    if count == vector.size:
        return np.arange(count)
    size = np.abs(vector)
    threshold = np.partition(size, vector.size - count)[vector.size - count]
    chosen = size > threshold
    equal = np.flatnonzero(size == threshold)
    chosen[equal[: count - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


def positions_size(count: int, of: int) -> int:
    """Bytes of `count` encoded positions below `of`: at most those of a bitmap."""
    low = _low_bits(count, of)
    return ((of if low is None else count * low + _high_bits(count, of, low)) + 7) // 8


def encode_positions(positions: Positions, of: int) -> bytes:
    """Encode ascending positions below `of`: as a bitmap, or in the code of Elias (1974) and Fano (1971) if shorter.

    That code writes the l low bits of each position as they are, and the high bits h_i as a bitmap with ones at
    h_i + i. It takes about 2 + log2(of / count) bits per position; the entropy of a random choice is about half a bit
    less.
    """
    count, low = len(positions), _low_bits(len(positions), of)
    if low is None:
        bits = np.zeros(of, np.bool_)
        bits[positions] = True
        return np.packbits(bits).tobytes()
    lows = (positions[:, None] >> np.arange(low)) & 1
    highs = np.zeros(_high_bits(count, of, low), np.bool_)
    highs[(positions >> low) + np.arange(count)] = True
    return np.packbits(np.concatenate([lows.reshape(-1).astype(np.bool_), highs])).tobytes()


def decode_positions(data: bytes, count: int, of: int) -> Positions:
    """The `count` positions below `of` that `encode_positions` wrote."""
    low = _low_bits(count, of)
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    if low is None:
        return np.flatnonzero(bits)
    positions: Positions = (np.flatnonzero(bits[count * low :]) - np.arange(count)) << low
    return positions + bits[: count * low].reshape(count, low) @ (1 << np.arange(low))


def _low_bits(count: int, of: int) -> int | None:
    """The l for which the code of Elias and Fano is shortest. None: a bitmap is at most as long."""
    lengths = [count * low + _high_bits(count, of, low) for low in range(of.bit_length())]
    shortest = min(lengths, default=0)
    return lengths.index(shortest) if shortest < of else None


def _high_bits(count: int, of: int, low: int) -> int:
    """The length of the bitmap of high bits, in bits."""
    return count + (of - 1 >> low)
