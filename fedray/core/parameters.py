"""A model's parameters as one flat float32 vector, fast to send and to add; the model's tensors are views of it."""

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
    """The place of one tensor in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The place of each tensor of a model in the vector.

    Trainable parameters come first, then float buffers, then frozen parameters. Integer buffers are never sent.
    `trainable` is the length of the first part, the only one that server optimisers change. `moving` is the length of
    the first two parts. Frozen parameters, most of a model with adapters, are the same in every round.
    """

    entries: tuple[Entry, ...]
    trainable: int
    moving: int

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.entries[-1].stop if self.entries else 0

    @classmethod
    def of(cls, model: nn.Module, keep: Callable[[str], bool] = lambda name: True) -> Layout:
        """The layout of the parameters and persistent float buffers whose names `keep` accepts."""
        tensors = model.state_dict(keep_vars=True)
        # named_parameters lists tied parameters once, under their first name.
        named = {n: p.requires_grad for n, p in model.named_parameters() if keep(n)}
        parameters, frozen = ([n for n, trains in named.items() if trains is wanted] for wanted in (True, False))
        buffers = [
            n for n, t in tensors.items() if not isinstance(t, nn.Parameter) and t.is_floating_point() and keep(n)
        ]
        entries: list[Entry] = []
        for name in [*parameters, *buffers, *frozen]:
            entries.append(Entry(name, tuple(tensors[name].shape), entries[-1].stop if entries else 0))
        ends = [0, *(entry.stop for entry in entries)]
        return cls(tuple(entries), ends[len(parameters)], ends[len(parameters) + len(buffers)])

    @property
    def tensors(self) -> tuple[int, ...]:
        """The sizes of the trainable tensors, in order."""
        return tuple(entry.stop - entry.start for entry in self.entries if entry.start < self.trainable)

    def cut(self, vector: Vector) -> dict[str, torch.Tensor]:
        """The state dict of a vector: name -> a copy of its tensor. ValueError for a vector of another size."""
        self.check(vector)
        return {entry.name: torch.tensor(vector[entry.start : entry.stop]).view(entry.shape) for entry in self.entries}

    def join(self, tensors: dict[str, torch.Tensor]) -> Vector:
        """The vector [size] of a state dict. ValueError for a tensor of another shape."""
        vector = np.empty(self.size, dtype=np.float32)
        for entry in self.entries:
            tensor = tensors[entry.name]
            if tuple(tensor.shape) != entry.shape:
                raise ValueError(
                    f"{entry.name} has shape {list(tensor.shape)}, but the model's has {list(entry.shape)}"
                )
            vector[entry.start : entry.stop] = tensor.detach().cpu().numpy().reshape(-1)
        return vector

    def check(self, vector: Vector) -> None:
        """Raise ValueError for a vector of another size."""
        if vector.shape != (self.size,):
            raise ValueError(
                f"{vector.size:,} parameters do not fit a model of {self.size:,}: is it another model or tokeniser?"
            )


class FlatModel:
    """A model whose parameters and float buffers are views of one flat tensor.

    The gradients are views of another flat tensor. Both have the order of the layout. So loading a broadcast,
    subtracting it, clipping and plain SGD take one operation each, however many tensors the model has.
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

    @property
    def weights(self) -> torch.Tensor:
        """The trainable part of `values`, [trainable]: what gradients and optimisers change."""
        return self.values[: self.layout.trainable]

    def backward(self, loss: torch.Tensor) -> None:
        """Set `gradient` to the gradient of a loss."""
        self.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]

    def load(self, vector: Vector) -> None:
        """Load a vector [size], and reset all other buffers to their initial values: no client affects the next."""
        self.layout.check(vector)
        if self.values.device.type == "cpu":
            np.copyto(self.values.numpy(), vector)
        else:
            self.values.copy_(torch.tensor(vector))
        for buffer, initial in self._rest:
            buffer.copy_(initial)

    def read(self) -> Vector:
        """A copy of the vector [size]."""
        return self.values.detach().cpu().numpy().copy()

    def difference(self, vector: Vector, buffers: bool = False) -> Vector:
        """The change since `load(vector)` in the trainable parameters and, with `buffers`, in the float buffers too."""
        length = self.layout.moving if buffers else self.layout.trainable
        delta: Vector = self.values[:length].detach().cpu().numpy() - vector[:length]
        return delta
