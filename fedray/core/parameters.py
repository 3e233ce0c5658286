"""A model's parameters as one flat float32 vector, fast to send and to add; the model's tensors are views of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch
from torch import nn

from fedray.core.types import Vector
from fedray.core.vectors import Spare


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

    Trainable parameters come first, then float buffers: both travel in every round. The personal part follows, what
    stays with a client: again trainable parameters, then float buffers. Frozen parameters, most of a model with
    adapters, come last: they are the same in every round. Integer buffers are never sent.

    `trainable` is the length of the first part, the only one that server optimisers change. `moving` is the length of
    the first two parts. `own` is how many parameters and how many numbers of buffers are personal.
    """

    entries: tuple[Entry, ...]
    trainable: int
    moving: int
    own: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.entries[-1].stop if self.entries else 0

    @property
    def personal(self) -> slice:
        """The personal part of the vector."""
        return slice(self.moving, self.moving + sum(self.own))

    @classmethod
    def of(
        cls,
        model: nn.Module,
        keep: Callable[[str], bool] = lambda name: True,
        personal: Callable[[str], bool] = lambda name: False,
    ) -> Layout:
        """The layout of the parameters and persistent float buffers whose names `keep` accepts.

        `personal`: whether a trainable parameter or a buffer stays with a client, by its name.
        """
        tensors = model.state_dict(keep_vars=True)
        # named_parameters lists tied parameters once, under their first name.
        named = {n: p.requires_grad for n, p in model.named_parameters() if keep(n)}
        parameters, frozen = ([n for n, trains in named.items() if trains is wanted] for wanted in (True, False))
        buffers = [
            n for n, t in tensors.items() if not isinstance(t, nn.Parameter) and t.is_floating_point() and keep(n)
        ]
        parts = [[n for n in names if personal(n) is own] for own in (False, True) for names in (parameters, buffers)]
        entries = _placed(Entry(n, tuple(tensors[n].shape), 0) for part in (*parts, frozen) for n in part)
        trainable, statistics, *own = (sum(tensors[n].numel() for n in part) for part in parts)
        return cls(entries, trainable, trainable + statistics, (own[0], own[1]))

    @cached_property
    def training(self) -> Layout:
        """The layout of the same tensors in a model: all that is trained, all buffers, then what is frozen.

        Personal tensors are the last among the trained ones, and the last among the buffers.
        """
        if not any(self.own):
            return self
        entries = (e for part in self._parts for e in self.entries if part.start <= e.start < part.stop)
        return Layout(_placed(entries), self.trainable + self.own[0], self.personal.stop)

    @property
    def _parts(self) -> tuple[slice, ...]:
        """The parts of the vector in the order of `training`."""
        personal, buffers = self.personal, self.moving + self.own[0]
        ends = (0, self.trainable), (self.moving, buffers), (self.trainable, self.moving), (buffers, personal.stop)
        return *(slice(*part) for part in ends), slice(personal.stop, self.size)

    def arranged(self, vector: Vector) -> Vector:
        """A vector [size] in the order of `training`: the same object if nothing is personal."""
        return np.concatenate([vector[part] for part in self._parts]) if any(self.own) else vector

    def restored(self, values: Vector) -> Vector:
        """The vector [size] whose numbers in the order of `training` are `values`."""
        if not any(self.own):
            return values
        vector, start = np.empty_like(values), 0
        for part in self._parts:
            vector[part], start = values[start : (stop := start + part.stop - part.start)], stop
        return vector

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


def _placed(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries one after the other."""
    placed: list[Entry] = []
    for entry in entries:
        placed.append(Entry(entry.name, entry.shape, placed[-1].stop if placed else 0))
    return tuple(placed)


class FlatModel:
    """A model whose parameters and float buffers are views of one flat tensor.

    The gradients are views of another flat tensor. Both have the order of `layout.training`, which is the vector's
    unless a part is personal. So loading a broadcast, subtracting it, clipping and plain SGD take one operation each,
    however many tensors the model has.
    """

    _uploaded: tuple[Vector, torch.Tensor] | None = None  # a broadcast, here and on the GPU

    def __init__(
        self,
        model: nn.Module,
        keep: Callable[[str], bool] = lambda name: True,
        personal: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.model = model
        self.layout = Layout.of(model, keep, personal)
        tensors, layout = model.state_dict(keep_vars=True), self.layout.training
        device = next(model.parameters()).device
        self.values = torch.empty(layout.size, device=device)
        self.gradient = torch.zeros(layout.trainable, device=device)
        for entry in layout.entries:
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
        self._spare = Spare()
        self._rest = [(buffer, buffer.clone()) for name, buffer in model.named_buffers() if name not in flat]

    @property
    def weights(self) -> torch.Tensor:
        """The trained part of `values`: what gradients and optimisers change. Its first `trainable` numbers travel."""
        return self.values[: self.layout.training.trainable]

    def backward(self, loss: torch.Tensor, more: bool = False) -> None:
        """Set `gradient` to the gradient of a loss. `more`: add it, for a loss that is a sum of parts."""
        if not more:
            self.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]

    def load(self, vector: Vector) -> None:
        """Load a vector [size], and reset all other buffers to their initial values: no client affects the next."""
        self.layout.check(vector)
        if self.values.device.type == "cpu":
            np.copyto(self.values.numpy(), self.layout.arranged(vector))
        else:
            self.values.copy_(self._there(vector))
        for buffer, initial in self._rest:
            buffer.copy_(initial)

    def _there(self, vector: Vector) -> torch.Tensor:
        """The vector on the GPU. A broadcast, which nobody can change, is uploaded once for the clients of a lane."""
        if self._uploaded is not None and self._uploaded[0] is vector:
            return self._uploaded[1]
        self._uploaded = None
        there = torch.tensor(self.layout.arranged(vector)).to(self.values.device)
        if not vector.flags.writeable:
            self._uploaded = vector, there
        return there

    def read(self) -> Vector:
        """A copy of the vector [size]."""
        return self.layout.restored(self.values.detach().cpu().numpy().copy())

    def difference(self, vector: Vector, buffers: bool = False) -> Vector:
        """The change since `load(vector)` in the trainable parameters and, with `buffers`, in the float buffers too.

        The personal part is left out.
        """
        length = self.layout.moving if buffers else self.layout.trainable
        if self._uploaded is not None and self._uploaded[0] is vector and not any(self.layout.own):
            change: Vector = (self.values[:length].detach() - self._uploaded[1][:length]).cpu().numpy()
            return change
        values = self.read() if any(self.layout.own) else self.values[:length].detach().cpu().numpy()
        return np.subtract(values[:length], vector[:length], out=self._spare.take(length))
