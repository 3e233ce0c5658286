"""Clients a second in one process, by the number of clients that train side by side (`engine.vectorise`)."""

from __future__ import annotations

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
        values[str(size)] = trainer.clients_a_second(0.05 if where.tiny else 1.0, size)
    return values
