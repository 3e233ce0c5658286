from __future__ import annotations

from functools import partial

from fedray.core.parallel import Parallel, serial


def power(exponent: int, base: int) -> int:
    return base**exponent


def test_in_order_and_one_at_a_time() -> None:
    seen: list[int] = []

    def note(item: int) -> int:
        seen.append(item)
        return -item

    results = serial(note, [3, 1, 2])
    assert seen == [] and next(results) == -3 and seen == [3]  # an item is computed when it is asked for
    assert list(results) == [-1, -2] and seen == [3, 1, 2]


def test_has_the_shape_that_lower_floors_call() -> None:
    parallel: Parallel = serial
    assert list(parallel(partial(power, 2), range(4), "squares")) == [0, 1, 4, 9]
    assert list(parallel(partial(power, 2), [], "nothing")) == []
