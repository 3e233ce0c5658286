"""Steps of models that would not fit into memory: micro-batches, activations computed twice, bf16, compiled layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from fedray.core.ranges import Count, Ranged, one_of
from fedray.data.features.dataset import Batch
from fedray.models.norms import batch_norms
from fedray.models.speech_only import Speech

LARGE = 10_000_000  # parameters; a step of a smaller model needs little beside the actor itself


@dataclass(frozen=True, kw_only=True)
class StepSettings(Ranged):
    """How a step of local training uses memory. The first two change no gradient but for rounding.

    Batch norm sees a micro-batch, not the batch. Masks of dropout are drawn for each micro-batch.
    """

    # Utterances whose activations are in memory at a time, while the gradients of a batch add up; null: the whole batch
    micro_batch: Count | None = None
    recompute: bool = False  # keep no activations inside a layer: the backward pass computes them again
    # float32 | bf16: of the layers' arithmetic; parameters, gradients, sums stay float32
    precision: str = one_of(("float32", "bf16"))
    compile: bool = False  # torch.compile the layers, on a GPU

    @property
    def alone(self) -> bool:
        """Whether a client must train alone: models side by side have one batch, and their layers are not wrapped."""
        return self.micro_batch is not None or self.recompute or self.compile or self.precision != "float32"

    def check_plain(self, kind: str) -> None:
        """ValueError: what is asked for does not apply to this algorithm, which takes steps of its own."""
        if self.alone:
            raise ValueError(
                f"algorithm.kind {kind} takes steps of its own: leave out micro_batch, recompute, precision and "
                "compile of algorithm.client"
            )


def micro_batches(batch: Batch, size: int | None) -> Iterator[Batch]:
    """Cut a batch into parts of at most `size` utterances, each as long as its longest."""
    if size is None or size >= len(batch):
        yield batch
        return
    for start in range(0, len(batch), size):
        part = slice(start, start + size)
        lengths = batch.lengths[part]
        yield Batch(batch.features[part, : int(lengths.max())], lengths, batch.positions[part])


@contextmanager
def stepping(model: nn.Module, settings: StepSettings, device: str) -> Iterator[None]:
    """Train a model in these ways while open."""
    wrapped = layers(model) if settings.recompute or settings.compile else []
    try:
        for layer in wrapped:
            forward: Callable[..., Any] = layer.forward
            if settings.compile and device != "cpu":
                forward = _compiled(layer, forward)
            layer.forward = _recomputed(layer, forward) if settings.recompute else forward
        with _half(device) if settings.precision == "bf16" else nullcontext():
            yield
    finally:
        for layer in wrapped:
            vars(layer).pop("forward", None)


def _half(device: str) -> AbstractContextManager[None]:
    """Compute in bf16, without autocast's cache: it would keep the first step's rounded weights until the last step."""
    return torch.autocast(torch.device(device).type, torch.bfloat16, cache_enabled=False)


def layers(model: nn.Module) -> list[nn.Module]:
    """The parts of a model that are computed one after the other: the members of its lists, or its children.

    A sequence of single operations is one layer, and so is a list inside of a list's member.
    """
    found = list[nn.Module]()
    for one in _lists(model):
        single = not any(True for member in one.children() for _ in member.children())
        found += [one] if single and isinstance(one, nn.Sequential) else one.children()
    return [layer for layer in found or model.children() if any(True for _ in layer.parameters())]


def _lists(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            yield child
        else:
            yield from _lists(child)


def _recomputed(layer: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    def once() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _as_now(layer)

    def again(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        return checkpoint(forward, *inputs, use_reentrant=False, context_fn=once, **named)

    return again


def _as_now(layer: nn.Module) -> AbstractContextManager[None]:
    """A context in which the layer computes what it computes now, where running statistics have seen the batch.

    Models mask padding by hooks that are gone when the backward pass begins.
    """
    hooks = [(module, dict(module._forward_pre_hooks)) for module in layer.modules() if module._forward_pre_hooks]
    parts = {id(part): part for module in layer.modules() if (part := getattr(module, "speech", None)) is not None}
    masks = [part.as_now() for part in parts.values() if isinstance(part, Speech)]

    @contextmanager
    def entered() -> Iterator[None]:
        norms = [(norm, norm.momentum) for norm in batch_norms(layer).values()]
        counts = [(count, count.clone()) for norm, _ in norms if (count := norm.num_batches_tracked) is not None]
        before = [(module, dict(module._forward_pre_hooks)) for module, _ in hooks]
        try:
            for norm, _ in norms:
                norm.momentum = 0.0  # other than without running statistics, the same tensors are kept
            for module, then in hooks:
                module._forward_pre_hooks.update(then)
            with ExitStack() as masked:
                for mask in masks:
                    masked.enter_context(mask)
                yield
        finally:
            for norm, momentum in norms:
                norm.momentum = momentum
            for count, was in counts:
                count.copy_(was)
            for module, then in before:
                module._forward_pre_hooks.clear()
                module._forward_pre_hooks.update(then)

    return entered()


def _compiled(layer: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled forward pass of a layer, which is compiled once."""
    if not hasattr(layer, "_fedray_compiled"):
        object.__setattr__(layer, "_fedray_compiled", torch.compile(forward, dynamic=True))
    found: Callable[..., Any] = layer._fedray_compiled  # type: ignore[assignment]
    return found
