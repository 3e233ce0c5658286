"""Parameters as one flat float32 vector with a layout: fast to send and to add, and the memory of a model at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import nn

from fedray.core.types import Vector


@dataclass(frozen=True)
class Entry:
    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """Where each entry of a model lies in the vector: first all trainable parameters, then all floating-point buffers, then what is frozen.

    Integer buffers never travel. `trainable` is the length of the first part: server optimisers step there and nowhere else. `moving` is
    that of the first two; frozen parameters, of which adapters leave the most, are the same in every round.
    """

    entries: tuple[Entry, ...]
    trainable: int
    moving: int

    @property
    def size(self) -> int:
        return self.entries[-1].stop if self.entries else 0

    @classmethod
    def of(cls, model: nn.Module, keep: Callable[[str], bool] = lambda name: True) -> Layout:
        """The layout of the parameters and persistent float buffers whose name `keep` accepts."""
        tensors = model.state_dict(keep_vars=True)
        named = {n: p.requires_grad for n, p in model.named_parameters() if keep(n)}  # tied ones once, under their first name
        parameters, frozen = ([n for n, trains in named.items() if trains is wanted] for wanted in (True, False))
        buffers = [n for n, t in tensors.items() if not isinstance(t, nn.Parameter) and t.is_floating_point() and keep(n)]
        entries: list[Entry] = []
        for name in [*parameters, *buffers, *frozen]:
            entries.append(Entry(name, tuple(tensors[name].shape), entries[-1].stop if entries else 0))
        ends = [0, *(entry.stop for entry in entries)]
        return cls(tuple(entries), ends[len(parameters)], ends[len(parameters) + len(buffers)])

    def cut(self, vector: Vector) -> dict[str, torch.Tensor]:
        """Name -> a tensor of its own, as in a state dict."""
        self.check(vector)
        return {entry.name: torch.tensor(vector[entry.start : entry.stop]).view(entry.shape) for entry in self.entries}

    def join(self, tensors: dict[str, torch.Tensor]) -> Vector:
        """The vector of a state dict, [size]."""
        vector = np.empty(self.size, dtype=np.float32)
        for entry in self.entries:
            tensor = tensors[entry.name]
            if tuple(tensor.shape) != entry.shape:
                raise ValueError(f"{entry.name} has shape {list(tensor.shape)}, but the model's has {list(entry.shape)}")
            vector[entry.start : entry.stop] = tensor.detach().cpu().numpy().reshape(-1)
        return vector

    def check(self, vector: Vector) -> None:
        if vector.shape != (self.size,):
            raise ValueError(
                f"{vector.size:,} parameters do not fit a model of {self.size:,}: were they made by another model or tokeniser?"
            )


class FlatModel:
    """A model whose parameters, float buffers and gradients lie in two flat tensors, in the order of its layout.

    Loading a broadcast, taking the difference to it, clipping and plain SGD then cost one operation each, whatever the number of entries.
    """

    def __init__(self, model: nn.Module, keep: Callable[[str], bool] = lambda name: True) -> None:
        self.model = model
        self.layout = Layout.of(model, keep)
        tensors = model.state_dict(keep_vars=True)
        device = next(model.parameters()).device
        self.values = torch.empty(self.layout.size, device=device)
        self.gradient = torch.zeros(self.layout.trainable, device=device)
        for entry in self.layout.entries:
            view = self.values[entry.start : entry.stop].view(entry.shape)
            tensor = tensors[entry.name]
            view.copy_(tensor.detach())
            if isinstance(tensor, nn.Parameter):
                tensor.data = view
                if tensor.requires_grad:
                    tensor.grad = self.gradient[entry.start : entry.stop].view(entry.shape)
            else:
                owner, _, name = entry.name.rpartition(".")
                model.get_submodule(owner)._buffers[name] = view
        flat = {entry.name for entry in self.layout.entries}
        self._rest = [(buffer, buffer.clone()) for name, buffer in model.named_buffers() if name not in flat]

    def load(self, vector: Vector) -> None:
        """Take over a vector, and put every other buffer back to where it was at first: nothing of the last client stays."""
        self.layout.check(vector)
        if self.values.device.type == "cpu":
            np.copyto(self.values.numpy(), vector)
        else:
            self.values.copy_(torch.tensor(vector))
        for buffer, initial in self._rest:
            buffer.copy_(initial)

    def read(self) -> Vector:
        """The vector, [size], as a copy."""
        return self.values.detach().cpu().numpy().copy()

    def difference(self, vector: Vector, buffers: bool = False) -> Vector:
        """What training changed since `load(vector)`: of the trainable part, or with the float buffers behind it."""
        length = self.layout.moving if buffers else self.layout.trainable
        delta: Vector = self.values[:length].detach().cpu().numpy() - vector[:length]
        return delta
