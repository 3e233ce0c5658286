"""Blocks of updates that several actors hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedray.core.packing import Packing
from fedray.engine.lane.aggregation import effective
from fedray.engine.lane.held import BLOCK_BYTES, HeldUpdates, Job, ReadBlock


@dataclass(frozen=True)
class Span(Job[Any]):
    """A job whose result is its number of inputs."""

    def run(self, place: Any, *inputs: Any) -> Any:
        return len(inputs)


class ShrinkingPool:
    """A pool that loses an actor after each wave of jobs that read."""

    def __init__(self, size: int) -> None:
        self.size, self.read = size, list[tuple[int, int]]()

    def run(self, jobs: dict[Any, Any]) -> dict[Any, Any]:
        if all(isinstance(job, ReadBlock) for job in jobs.values()):
            self.read += [span for _, span in jobs]
            self.size = max(1, self.size - 1)
            return {name: (name,) for name in jobs}
        return {name: np.array(name) for name in jobs}


def test_no_block_is_left_out_where_actors_die_between_waves() -> None:
    pool, size = ShrinkingPool(4), 8 * int(BLOCK_BYTES / 4)
    held = HeldUpdates(pool, 0, {0: 0}, {"a": {}}, Packing(size), ())  # type: ignore[arg-type]
    blocks = [tuple(block.tolist()) for block in held.blocks(Span())]
    assert blocks == pool.read and len(blocks) == 8
    assert [start for start, _ in blocks] == [0, *(stop for _, stop in blocks[:-1])] and blocks[-1][1] == size


def test_weights_of_any_unit_count_as_so_many_clients() -> None:
    """Weights count as (sum w)^2 / sum w^2 clients, averaged over layers; a layer without weights counts as 0."""
    table = np.array([[3.0, 2.0, 0.0], [1.0, 2.0, 0.0]])
    assert effective(table) == effective(10 * table) == pytest.approx((16 / 10 + 2 + 0) / 3)
