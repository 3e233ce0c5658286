"""Lower precision: bf16 with autocast, and TF32 in matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from tests.gpu.record import Item, Missed, Values, Where
from tests.gpu.workloads import Trainer, milliseconds

TITLE = "Precision: float32, TF32, bf16"
ABOUT = (
    "Loss and gradients of the longest utterances, forwards and backwards. `loss` and `gradient` are relative "
    "differences to float32 with torch's defaults, on the same device and dropout. A row fails where the loss differs "
    "by more than 5 %."
)
OPENS_DEVICE = True
SECONDS = 60


def items(where: Where) -> Iterator[Item]:
    for name in ("conformer-s", "conformer embedded"):
        for batch in (2,) if where.tiny else (6, 32):
            for precision in ("TF32", "bf16"):
                title = f"{name}, batch {batch}, {precision}"
                yield title, lambda name=name, batch=batch, how=precision: _compare(name, batch, how, where)


def _compare(name: str, batch: int, how: str, where: Where) -> Values:
    trainer = Trainer(name, where, batch)
    flat, (longest, targets) = trainer.task.flat(where.device), trainer.largest()
    flat.load(trainer.start)
    flat.model.train()
    moved = longest.to(where.device)

    def pass_(context: AbstractContextManager[object]) -> float:
        torch.manual_seed(0)
        flat.gradient.zero_()
        with context:
            loss = trainer.task.loss(flat.model, moved, targets)
        loss.float().backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def precision() -> AbstractContextManager[object]:
        return _tf32() if how == "TF32" else torch.autocast(where.device, torch.bfloat16)

    plain, gradient = pass_(nullcontext()), flat.gradient.clone()
    low, seconds = pass_(precision()), 0.05 if where.tiny else 1.0
    values: Values = {"loss": abs(low - plain) / abs(plain)}
    values["gradient"] = float((flat.gradient - gradient).norm() / gradient.norm())
    values["float32, ms"] = milliseconds(lambda: pass_(nullcontext()), where, seconds)
    values[f"{how}, ms"] = milliseconds(lambda: pass_(precision()), where, seconds)
    values["times as fast"] = values["float32, ms"] / values[f"{how}, ms"]
    if not values["loss"] < 0.05:
        raise Missed("the loss differs by more than 5 %", values)
    return values


@contextmanager
def _tf32() -> Iterator[None]:
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
