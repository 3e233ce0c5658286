"""Batch norm in federated learning: its statistics are buffers, which no gradient moves, and every client has its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """The batch norm layers (1d, 2d, 3d, synchronised; SpeechBrain wraps the same) by their names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}


def running_statistics(model: nn.Module) -> list[str]:
    """The names of all running means and variances in the state dict: the buffers that a rule for batch norm is about.

    Other float buffers (tables of positions) are constants; `num_batches_tracked` is an integer and never travels.
    """
    layers = batch_norms(model).items()
    return [
        ".".join(filter(None, (name, buffer)))
        for name, layer in layers
        for buffer in ("running_mean", "running_var")
        if getattr(layer, buffer) is not None
    ]


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """While open, batch norm in training mode uses the batch's statistics and leaves the running ones as they were.

    This is the modified static batch norm of FedNST: batch statistics while training, running statistics kept from theta_0.
    In evaluation mode nothing changes. (A momentum of 0 would do the same, except that one infinite activation leaves NaN for ever.)
    """
    tracking = [(layer, layer.track_running_stats) for layer in batch_norms(model).values()]
    try:
        for layer, _ in tracking:
            layer.track_running_stats = False
        yield
    finally:
        for layer, tracked in tracking:
            layer.track_running_stats = tracked
