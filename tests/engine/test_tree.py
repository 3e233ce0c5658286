"""The tree of sums: the same bits in whatever order lanes end, few sums at a time, and what a lost node costs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from fedray.core.sums import WeightedSum
from fedray.engine.lane.tree import FAN_IN, LIGHT_BYTES, Kept, Merge, Spot, Tree, large

SIZE = 50
NODES = ("a", "b", "c")


def lane_sum(lane: int) -> WeightedSum:
    generator, total = np.random.default_rng(lane), WeightedSum()
    for _ in range(3):
        total.add(generator.standard_normal(SIZE).astype(np.float32), generator.uniform(-3, 3))
    return total


def by_hand(lanes: int) -> WeightedSum | None:
    """Merge groups of neighbours, level by level."""
    level = [lane_sum(lane) for lane in range(lanes)]
    while len(level) > 1:
        groups = [level[at : at + FAN_IN] for at in range(0, len(level), FAN_IN)]
        for first, *others in groups:
            for other in others:
                first.merge(other)
        level = [group[0] for group in groups]
    return level[0] if level else None


class Store:
    """Sums by reference, and the jobs that wait. Merges run in any order, like lanes."""

    def __init__(self, tree: Tree[WeightedSum], seed: int) -> None:
        self.tree, self.random, self.sums = tree, random.Random(seed), dict[int, WeightedSum]()
        self.jobs: dict[Any, Any] = {}
        self.most = 0

    def end(self, lanes: set[int]) -> None:
        """Train these lanes, and merge whatever can be merged."""
        self.jobs = {lane: None for lane in lanes} | {**self.tree.ready()}
        while self.jobs:
            key = self.random.choice(list(self.jobs))
            job = self.jobs.pop(key)
            if isinstance(job, Merge):
                parts = [WeightedSum(**vars(self.sums[reference])) for reference in job.inputs]
                for part in parts:
                    assert part.total is not None
                    part.total.flags.writeable = False  # as in the object store
                total, _ = job.run(None, *parts)  # type: ignore[arg-type]
                for reference in job.inputs:
                    del self.sums[reference]
            else:
                total = lane_sum(key)
            self.sums[id(total)] = total
            self.most = max(self.most, len(self.sums))
            spot = key if isinstance(key, Spot) else Spot(0, key)
            self.jobs |= self.tree.add(spot, Kept(id(total), self.random.choice(NODES)))


@pytest.mark.parametrize("lanes", [1, 2, 7, 8, 9, 64, 65, 130])
def test_the_same_bits_in_whatever_order_lanes_end(lanes: int) -> None:
    expected = by_hand(lanes)
    for seed in range(3):
        store = Store(Tree(lanes), seed)
        store.end(store.tree.missing())
        (total,) = store.sums.values()
        assert expected is not None and vars(total)["total"].tobytes() == vars(expected)["total"].tobytes()
        assert (total.weight, total.squares, total.reference) == (expected.weight, expected.squares, expected.reference)
        small = Tree[WeightedSum](lanes)
        for lane in random.Random(seed).sample(range(lanes), lanes):
            small.add(Spot(0, lane), lane_sum(lane))
        here, through = small.total(None)  # type: ignore[arg-type]
        assert here is not None and vars(here)["total"].tobytes() == vars(expected)["total"].tobytes() and not through


def test_up_to_eight_lanes_are_added_one_after_the_other() -> None:
    total = lane_sum(0)
    for lane in range(1, FAN_IN):
        total.merge(lane_sum(lane))
    expected = by_hand(FAN_IN)
    assert expected is not None and vars(total)["total"].tobytes() == vars(expected)["total"].tobytes()


def test_lanes_that_end_in_order_leave_few_sums() -> None:
    tree, sums, most = Tree[WeightedSum](512), dict[Any, int](), 0
    for lane in range(512):
        jobs: dict[Any, Merge] = {}
        sums[lane] = 1
        jobs |= tree.add(Spot(0, lane), Kept(lane, "a"))
        while jobs:
            spot, job = jobs.popitem()
            for reference in job.inputs:
                del sums[reference]
            sums[spot] = 1
            jobs |= tree.add(spot, Kept(spot, "a"))
        most = max(most, len(sums))
    assert most <= 3 * (FAN_IN - 1) + 1 and len(sums) == 1


def test_lanes_without_a_sum_are_skipped() -> None:
    tree = Tree[WeightedSum](20)
    for lane in range(20):
        tree.add(Spot(0, lane), lane_sum(3) if lane == 3 else None)
    total, _ = tree.total(None)  # type: ignore[arg-type]
    expected = lane_sum(3).total
    assert total is not None and total.total is not None and expected is not None
    assert total.total.tobytes() == expected.tobytes()
    assert Tree[WeightedSum](0).total(None) == (None, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_a_lost_node_costs_the_lanes_below_its_sums(seed: int) -> None:
    lanes, expected = 100, by_hand(100)
    store = Store(Tree(lanes), seed)
    store.end(set(range(0, lanes, 3)) | set(range(48)))  # of the others none has ended
    before = store.tree.missing()
    gone = [spot for spot, part in store.tree._sums.items() if isinstance(part, Kept) and part.node == "a"]
    store.tree.lose(("b", "c"))
    below = {lane for spot in gone for lane in range(spot.at * FAN_IN**spot.level, (spot.at + 1) * FAN_IN**spot.level)}
    assert store.tree.missing() == before | below & set(range(lanes))
    store.end(store.tree.missing())
    total, _ = store.sums[store.tree._sums[Spot(3, 0)].reference], None  # type: ignore[union-attr]
    assert expected is not None and vars(total)["total"].tobytes() == vars(expected)["total"].tobytes()


def test_a_sum_of_more_than_a_megabyte_stays_in_the_object_store() -> None:
    assert not large(int(LIGHT_BYTES) // 4)
    assert large(int(LIGHT_BYTES) // 4 + 1)
