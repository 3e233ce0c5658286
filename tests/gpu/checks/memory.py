"""Memory of a client in a lane, and the fraction of a GPU that is enough for it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fedray.engine.jobs.deaths import Cause, doom
from tests.gpu.record import Item, Missed, Values, Where
from tests.gpu.workloads import Trainer

TITLE = "Memory of a lane"
ABOUT = (
    "Peak memory of one client, by utterances a batch: `allocated` by tensors, `reserved` by torch, `process` all that "
    "the GPU holds for this process (CUDA's context and libraries included), in MB. `fraction` is the smallest "
    "`gpus_per_client` of those tried with which the client trains. Too small a fraction must end in an error that the "
    "engine takes for a lack of memory."
)
OPENS_DEVICE = True
SECONDS = 90
FRACTIONS = (0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125)


def items(where: Where) -> Iterator[Item]:
    sizes = (2,) if where.tiny else (6, 32)
    for name in ("crnn base", "conformer embedded", "conformer-s", "crdnn common_voice"):
        for batch in sizes:
            yield f"{name}, batch {batch}", lambda name=name, batch=batch: _peak(name, batch, where)
    if where.gpu:
        yield "too small a fraction", lambda: _too_small(where)


def _peak(name: str, batch: int, where: Where) -> Values:
    trainer = Trainer(name, where, batch)
    if not where.gpu:
        return {"loss": trainer.client()}
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    trainer.client()
    free, total = torch.cuda.mem_get_info()
    values: Values = {"allocated": torch.cuda.max_memory_allocated() / 1e6}
    values |= {"reserved": (torch.cuda.max_memory_reserved() - before) / 1e6, "process": (total - free) / 1e6}
    fits = 1.0
    try:
        for fraction in FRACTIONS:
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(fraction)
            trainer.client()
            fits = fraction
    except Exception as error:
        if not _of_memory(error):
            raise
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    return values | {"fraction": fits}


def _of_memory(error: Exception) -> bool:
    """Whether the engine recognises an error as a lack of GPU memory."""
    found = doom(error)
    return found is not None and found.death.cause is Cause.GPU_MEMORY


def _too_small(where: Where) -> Values:
    trainer = Trainer("conformer-s", where, 16)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-3)
    try:
        trainer.client()
    except Exception as error:
        values: Values = {"error": f"{type(error).__name__}: {str(error)[:160]}", "the engine": str(doom(error))[:160]}
        if not _of_memory(error):
            raise Missed("the engine does not take this error for a lack of memory", values) from error
        return values
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    raise Missed("a client trains in a thousandth of the memory", {})
