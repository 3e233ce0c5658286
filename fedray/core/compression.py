"""Compress updates to half precision or 8 bits a number. A client adds the error to its next update (error feedback).

Seide, Fu, Droppo, Li, Yu. 1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training
of Speech DNNs. Interspeech 2014: here with eight bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedray.core.ranges import Count
from fedray.core.types import Vector

KINDS = ("none", "half", "int8")
LARGEST = 127


@dataclass(frozen=True)
class Compression:
    """How a client compresses its update before it sends it."""

    kind: str = "none"  # none: 4 bytes a number | half: 2 | int8: 1, and 4 for each block
    feedback: bool = True  # a client keeps the error of its update, and adds it to its next update
    block: Count = 1024  # int8: numbers that share a scale

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"upload.kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.block < 1:
            raise ValueError(f"upload.block must be at least 1, not {self.block}")

    def send_with_feedback(self, delta: Vector, lost: Vector | None) -> tuple[Vector, int, Vector | None]:
        """The update as the server receives it, the bytes sent, and the error (None without feedback).

        `lost`: the error of the client's last update, which is added to this update.
        """
        wanted = delta if lost is None else delta + np.asarray(lost)
        arrived, sent = self.send(wanted)
        return arrived, sent, wanted - arrived if self.feedback and self.kind != "none" else None

    def send(self, delta: Vector) -> tuple[Vector, int]:
        """The update as the server receives it, and the bytes sent.

        NaN stays NaN, so that the round can drop the update.
        """
        if self.kind == "none":
            return delta, delta.nbytes
        if self.kind == "half":
            with np.errstate(over="ignore"):  # above 65,504 it is infinite, and the round drops the update
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
