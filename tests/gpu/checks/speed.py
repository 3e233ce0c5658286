"""Clients a second in one process, and a step on the device against the processor, by utterances a batch."""

from __future__ import annotations

from collections.abc import Iterator

from tests.gpu.record import Item, Values, Where
from tests.gpu.workloads import Trainer, milliseconds, workloads

TITLE = "Speed of one process"
ABOUT = (
    "Clients a second, each from the broadcast to its update, one epoch over `utterances`. A step is one gradient step "
    "on the longest utterances, which are on the device already; the processor uses one thread, as an actor does."
)
OPENS_DEVICE = True
SECONDS = 120


def items(where: Where) -> Iterator[Item]:
    for name, workload in workloads().items():
        for batch in dict.fromkeys((workload.batch, 64)) if not where.tiny else (2,):
            yield f"{name}, batch {batch}", lambda name=name, batch=batch: _speed(name, batch, where)


def _speed(name: str, batch: int, where: Where) -> Values:
    seconds = 0.05 if where.tiny else 1.0
    there = Trainer(name, where, batch)
    values: Values = {"parameters": there.parameters, "utterances": len(there.data)}
    values |= {"clients/s": there.clients_a_second(seconds), "steps a client": there.steps}
    values["step, ms"] = milliseconds(there.step(), where, seconds / 2)
    if batch == workloads()[name].batch or where.tiny:
        here = Where("cpu", where.tiny)
        values["processor's step, ms"] = milliseconds(Trainer(name, here, batch).step(), here, seconds / 2)
        values["times as fast"] = values["processor's step, ms"] / values["step, ms"]
    return values
