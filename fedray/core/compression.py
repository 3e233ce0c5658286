"""Smaller updates: half precision or 8 bits a number, and what is lost goes along with the next one (error feedback).

Seide, Fu, Droppo, Li, Yu. 1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech DNNs.
Interspeech 2014: the same with eight bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedray.core.types import Vector

KINDS = ("none", "half", "int8")
LARGEST = 127


@dataclass(frozen=True)
class Compression:
    kind: str = "none"  # none: 4 bytes a number | half: 2 | int8: 1, and 4 more a block
    feedback: bool = True  # a client keeps what its update lost, and adds it to its next one
    block: int = 1024  # int8: so many numbers share a scale

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"upload.kind is {', '.join(KINDS)}, not {self.kind!r}")
        if self.block < 1:
            raise ValueError(f"upload.block must be at least 1, not {self.block}")

    @property
    def remembers(self) -> bool:
        return self.feedback and self.kind != "none"

    def send(self, delta: Vector) -> tuple[Vector, int]:
        """The update as it arrives, and the bytes that travelled. NaN stays NaN, so that the round can leave such an update out."""
        if self.kind == "none":
            return delta, delta.nbytes
        if self.kind == "half":
            with np.errstate(over="ignore"):  # above 65,504: infinite, and left out by name
                halves = delta.astype(np.float16)
            return halves.astype(np.float32), halves.nbytes
        blocks = np.zeros(-(-delta.size // self.block) * self.block, np.float32)
        blocks[: delta.size] = delta
        rows = blocks.reshape(-1, self.block)
        scales = np.abs(rows).max(1, keepdims=True) / np.float32(LARGEST)
        with np.errstate(invalid="ignore"):
            numbers = np.rint(np.divide(rows, scales, out=np.zeros_like(rows), where=scales != 0))
            arrived: Vector = (numbers * scales).reshape(-1)[: delta.size]
        return arrived, delta.size + scales.nbytes
