"""CUDA graphs: whether a training step of fixed shapes can be captured, and what it gains."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from tests.gpu.record import Item, Missed, Values, Where
from tests.gpu.workloads import Trainer, milliseconds

TITLE = "CUDA graphs"
ABOUT = (
    "A step (forwards, backwards, SGD) on utterances of one length, launched kernel by kernel, and replayed from a "
    "graph. `without padding` is the model's `unpadded`, which reads no lengths, with a plain mean for a loss. `as "
    "fedray trains` is the task's loss: that it cannot be captured is an answer and no failure, since it reads lengths "
    "on the processor. After a failed capture, later rows may fail with it."
)
OPENS_DEVICE = True
SECONDS = 60
Step = Callable[[], Tensor]


def items(where: Where) -> Iterator[Item]:
    for name in ("crnn base", "conformer embedded", "conformer-s"):
        yield f"{name} without padding", lambda name=name: _compare(name, where, _plain)
    yield "conformer embedded with CTC", lambda: _compare("conformer embedded", where, _ctc)
    yield "conformer embedded as fedray trains", lambda: _compare("conformer embedded", where, _task)


def _compare(name: str, where: Where, make: Callable[[Trainer, Where], Step]) -> Values:
    trainer = Trainer(name, where)
    loss = make(trainer, where)
    flat = trainer.task.flat(where.device)
    flat.load(trainer.start)
    flat.model.train()

    def step() -> None:
        flat.gradient.zero_()
        loss().backward()  # type: ignore[no-untyped-call]
        flat.weights.add_(flat.gradient, alpha=-1e-4)

    seconds = 0.05 if where.tiny else 1.0
    values: Values = {"launched, ms": milliseconds(step, where, seconds)}
    if not where.gpu:
        return values | {"captured": "no: graphs need a GPU"}
    try:
        graph = _captured(step)
    except Exception as error:
        values["captured"] = f"no: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if make is _plain:
            raise Missed("a step without padding cannot be captured", values) from error
        return values
    values |= {"captured": "yes", "replayed, ms": milliseconds(graph.replay, where, seconds)}
    values["times as fast"] = values["launched, ms"] / values["replayed, ms"]
    if not bool(torch.isfinite(flat.weights).all()):
        raise Missed("the replayed steps leave NaN in the weights", values)
    return values


def _captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # what the first steps allocate must not be captured
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def _features(trainer: Trainer, where: Where) -> Tensor:
    """Features [B, T, bins] of utterances of one length: the longest ones, whose padding counts as speech."""
    batch, _ = trainer.largest()
    return batch.features.to(where.device)


def _plain(trainer: Trainer, where: Where) -> Step:
    features, model = _features(trainer, where), trainer.task.flat(where.device).model
    return lambda: model.unpadded(features).square().mean()  # type: ignore[operator]


def _ctc(trainer: Trainer, where: Where) -> Step:
    """The CTC loss with full lengths, which are known on the processor."""
    features, model = _features(trainer, where), trainer.task.flat(where.device).model
    with torch.no_grad():
        size, frames = model.unpadded(features).shape[:2]  # type: ignore[operator]
    targets = torch.ones(size, 5, dtype=torch.int64, device=where.device)
    lengths, sizes = (frames,) * size, (5,) * size

    def loss() -> Tensor:
        log_probs = model.unpadded(features).transpose(0, 1)  # type: ignore[operator]
        return ctc_loss(log_probs, targets, lengths, sizes, zero_infinity=True)

    return loss


def _task(trainer: Trainer, where: Where) -> Step:
    batch, targets = trainer.largest()
    moved, model = batch.to(where.device), trainer.task.flat(where.device).model
    return lambda: trainer.task.loss(model, moved, targets)
