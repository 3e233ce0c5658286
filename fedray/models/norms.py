"""Batch norm in federated learning: running statistics are buffers, without gradients, that differ by client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Name -> batch norm layer (1d, 2d, 3d or synchronised, those in SpeechBrain's wrappers included)."""
    return {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}


def norm_layers(model: nn.Module) -> list[str]:
    """The names of the norm layers of all kinds that have parameters or running statistics."""
    kinds = (_NormBase, nn.GroupNorm, nn.LayerNorm)
    return [name for name, module in model.named_modules() if isinstance(module, kinds) and module.state_dict()]


def running_statistics(model: nn.Module) -> list[str]:
    """The names of all running means and variances in the state dict.

    Other float buffers, such as tables of positions, are constant. `num_batches_tracked` is an integer, which is never
    sent.
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
    """While open, batch norm in training mode uses the batch's statistics, and does not update the running ones.

    This is the modified static batch norm of FedNST: batch statistics in training, running statistics of theta_0.
    Evaluation mode is not affected. A momentum of 0 would have the same effect, except that one infinite activation
    would leave NaN in the statistics.
    """
    tracking = [(layer, layer.track_running_stats) for layer in batch_norms(model).values()]
    try:
        for layer, _ in tracking:
            layer.track_running_stats = False
        yield
    finally:
        for layer, tracked in tracking:
            layer.track_running_stats = tracked
