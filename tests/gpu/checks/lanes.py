"""Clients a second in one process by the number of clients that are trained side by side (`engine.vectorise`)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.gpu.record import Item, Values, Where
from tests.gpu.workloads import Trainer, workloads

TITLE = "Clients side by side"
ABOUT = (
    "Clients a second, each from the broadcast to its update, one epoch. `1` trains one client after the other, as "
    "`engine.vectorise: never` does."
)
OPENS_DEVICE = True
SECONDS = 90
SIZES = (1, 2, 4, 8, 16, 32)


def items(where: Where) -> Iterator[Item]:
    for name in workloads():
        yield name, lambda name=name: _speed(name, where)


def _speed(name: str, where: Where) -> Values:
    trainer = Trainer(name, where)
    values: Values = {"steps a client": trainer.steps}
    for size in SIZES if not where.tiny else (1, 2):
        values[str(size)] = _clients_a_second(trainer, size, 0.05 if where.tiny else 1.0)
    return values


def _clients_a_second(trainer: Trainer, size: int, seconds: float) -> float:
    """After one group that warms up; at least one is timed."""

    def group() -> None:
        if size == 1:
            trainer.client()
        else:
            trainer.lane(size, size)

    group()
    trainer.where.wait()
    since, done = time.perf_counter(), 0
    while not done or time.perf_counter() - since < seconds:
        group()
        done += size
    trainer.where.wait()
    return done / (time.perf_counter() - since)
