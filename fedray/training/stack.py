"""The models of several clients in one tensor, and their calls made as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedray.core.parameters import FlatModel
from fedray.core.types import Vector
from fedray.core.vectors import Spare
from fedray.models.norms import frozen_statistics
from fedray.models.padding import shortest_known
from fedray.training.task import Task

Function = Callable[..., Any]  # (model, *tensors) -> a tensor or a tuple of tensors, all [batch, ...]


def answer(model: nn.Module, function: Function, *tensors: Tensor) -> Any:
    """Call `function(model, *tensors)`, in one call with other clients' when clients train side by side.

    The first tensor is [batch, time, ...], the second the lengths [batch]; all have the batch as first dimension.
    """
    return model.row.answer(function, tensors) if isinstance(model, RowModel) else function(model, *tensors)


@dataclass(eq=False)
class Call:
    """A call to a client's model."""

    stack: Stack
    row: Row
    function: Function
    tensors: tuple[Tensor, ...]
    gradients: bool
    error: BaseException | None = None
    outputs: Any = None

    @property
    def key(self) -> Any:
        """Calls with equal keys can be made as one."""
        return self.stack, self.function, self.row.frozen, self.row.model.training, self.gradients, self._shapes

    @property
    def _shapes(self) -> Any:
        features, lengths = self.tensors[:2]
        match self.stack.clients_together:
            case "any shapes":
                return None
            case "equal batches":
                return len(features)
            case "equal lengths" if int(lengths.min()) == features.shape[1]:
                return tuple(tensor.shape for tensor in self.tensors)
        return id(self)  # matches no other call


@dataclass(eq=False)
class Gradients:
    """The gradients of a client's outputs, to be propagated back to its parameters."""

    answer: Answer
    slot: int  # the client's place in the answer
    outputs: tuple[Tensor, ...]
    error: BaseException | None = None


class Row(FlatModel):
    """A client's model: a row of a stack. It has the interface of a separate model."""

    def __init__(self, stack: Stack, index: int, frozen: bool, wait: Callable[[Call | Gradients], None]) -> None:
        self.stack, self.frozen, self._wait = stack, frozen, wait
        self.layout = stack.template.layout
        self.values, self.gradient = stack.values[index], stack.gradient[index]
        self.index = index  # the row of the stack
        self.model = RowModel(self)
        self._spare = Spare()
        self._open: list[Gradients] = []

    def load(self, vector: Vector) -> None:
        """Load a vector [size]. ValueError when its frozen parameters differ from the other clients'."""
        self.layout.check(vector)
        self.stack.load_frozen(vector)
        self.values.copy_(torch.tensor(self.layout.arranged(vector)[: len(self.values)]))

    def read(self) -> Vector:
        """A copy of the vector [size]."""
        values: Vector = torch.cat([self.values, self.stack.frozen]).cpu().numpy()
        return self.layout.restored(values)

    def backward(self, loss: Tensor, more: bool = False) -> None:
        """Set `gradient` to that of a loss: here back to the model's outputs, from there along with other clients."""
        if not more:
            self.gradient.zero_()
            for output in (output for request in self._open for output in request.outputs):
                output.grad = None  # another model's loss may have depended on it
        loss.backward()  # type: ignore[no-untyped-call]
        for request in self._open:
            if any(output.grad is not None for output in request.outputs):
                self._wait(request)
        self._open = []

    def answer(self, function: Function, tensors: tuple[Tensor, ...]) -> Any:
        """Call `function(model, *tensors)` with this client's parameters. `backward` propagates gradients back."""
        call = Call(self.stack, self, function, tensors, torch.is_grad_enabled())
        self._wait(call)
        outputs, request = call.outputs
        if request is not None:
            self._open.append(request)
        return outputs


class RowModel(nn.Module):
    """A stand-in for a client's model that passes its calls to the row."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row

    def forward(self, *tensors: Tensor) -> Any:
        """The model's outputs."""
        return self.row.answer(_forward, tensors)

    def __getattr__(self, name: str) -> Any:
        """A model attribute, such as `bos`. TypeError for a method: it would not know whose parameters to use."""
        found = getattr(self.row.stack.template.model, name)
        if callable(found):
            raise TypeError(
                f"clients that train side by side cannot call model.{name}: call it in a function that goes to "
                "fedray.training.stack.answer, or set engine.vectorise=never"
            )
        return found

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """The modules of the model that the calls are made with."""
        yield from self.row.stack.template.model.named_modules(*args, **kwargs)


class Answer:
    """The outputs of calls made as one, and their backward pass to the parameters."""

    def __init__(self, calls: Sequence[Call], weights: Tensor, outputs: tuple[Tensor, ...]) -> None:
        """`weights`: [clients, trainable], the leaf of the graph. `outputs`: [clients, batch, ...] each."""
        self._rows, self._weights, self._outputs = [call.row for call in calls], weights, outputs
        self._left = len(calls)

    def of(self, slot: int, batch: int) -> tuple[Tensor, ...]:
        """The outputs of one client, [batch, ...] each: leaves of the client's own graph."""
        mine = [output[slot, :batch].detach() for output in self._outputs]
        return tuple(
            tensor.requires_grad_(output.requires_grad) for tensor, output in zip(mine, self._outputs, strict=True)
        )

    def backward(self, requests: Sequence[Gradients]) -> None:
        """Propagate these clients' gradients back, and add the results to the gradients of their rows."""
        self._left -= len(requests)
        outputs, gradients = [], []
        for position, output in enumerate(self._outputs):
            if output.requires_grad:
                gradient = torch.zeros_like(output)
                for request in requests:
                    mine = request.outputs[position]
                    if mine.grad is not None:
                        gradient[request.slot, : len(mine)] = mine.grad
                        mine.grad = None
                outputs.append(output)
                gradients.append(gradient)
        (found,) = torch.autograd.grad(outputs, self._weights, gradients, retain_graph=self._left > 0)
        for request in requests:
            self._rows[request.slot].gradient.add_(found[request.slot])


class Stack:
    """The models of a group's clients for one task. Frozen parameters, the same for all, are stored once."""

    def __init__(self, task: Task, device: str, size: int, number: int = 0) -> None:
        """`number`: of each client's models, from 0."""
        self.template = task.numbered(device, -1 - number)
        self.layout = layout = self.template.layout.training
        self.clients_together = getattr(self.template.model, "clients_together", None)
        self.values = torch.empty(size, layout.moving, device=device)
        self.gradient = torch.zeros(size, layout.trainable, device=device)
        self._frozen_of: Vector | None = None  # the vector whose frozen parameters are loaded
        self._entries = [entry for entry in layout.entries if entry.start < layout.moving]
        self._trainable = sum(entry.start < layout.trainable for entry in self._entries)

    @property
    def frozen(self) -> Tensor:
        """The frozen parameters."""
        return self.template.values[self.layout.moving :]

    def load_frozen(self, vector: Vector) -> None:
        """Load frozen parameters. ValueError when they differ from another client's."""
        moving = self.layout.moving
        if self._frozen_of is None:
            self.template.load(vector)
        elif vector is not self._frozen_of and not np.array_equal(vector[moving:], self._frozen_of[moving:]):
            raise ValueError(
                "clients with different frozen parameters cannot be trained side by side: set engine.vectorise=never"
            )
        self._frozen_of = vector

    def forward(self, calls: Sequence[Call]) -> None:
        """Make calls with equal keys as one."""
        first, rows = calls[0], [call.row.index for call in calls]
        trainable = self.layout.trainable
        weights = self.values[rows, :trainable].requires_grad_(first.gradients)  # a copy, like the buffers
        buffers = self.values[rows, trainable:]
        tensors = [stacked(alike) for alike in zip(*(call.tensors for call in calls), strict=True)]
        with torch.set_grad_enabled(first.gradients), self._mode(first.row):
            made = self._compute(first.function, self._named(weights, buffers), tensors)
        self.values[rows, trainable:] = buffers
        outputs = made if isinstance(made, tuple) else (made,)
        answer = Answer(calls, weights, outputs)
        for slot, call in enumerate(calls):
            mine = answer.of(slot, len(call.tensors[0]))
            request = Gradients(answer, slot, mine) if first.gradients else None
            call.outputs = mine if isinstance(made, tuple) else mine[0], request

    def _named(self, weights: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        """The tensors of the models by their names, [clients, ...] each."""
        trained, rest = self._entries[: self._trainable], self._entries[self._trainable :]
        # One `split`, whose backward pass is one copy. The buffers are slices, which batch norm may change in place.
        pieces = list(torch.split(weights, [entry.stop - entry.start for entry in trained], 1))
        start = self.layout.trainable
        pieces += [buffers[:, entry.start - start : entry.stop - start] for entry in rest]
        entries = zip(self._entries, pieces, strict=True)
        return {f"model.{entry.name}": piece.view(len(weights), *entry.shape) for entry, piece in entries}

    @contextmanager
    def _mode(self, row: Row) -> Iterator[None]:
        """Put the template into the mode of a row's model."""
        model = self.template.model
        model.train(row.model.training)
        with frozen_statistics(model) if row.frozen else nullcontext():
            yield

    def _compute(self, function: Function, named: dict[str, Tensor], tensors: Sequence[Tensor]) -> Any:
        """The outputs of all models, [clients, batch, ...] each."""

        def one(named: dict[str, Tensor], *tensors: Tensor) -> Any:
            return functional_call(_Model(self.template.model), named, (function, *tensors))

        lengths = tensors[1]
        if len(lengths) > 1:
            with shortest_known(int(lengths.min())):
                return vmap(one, randomness="different")(named, *tensors)
        made = one({name: tensor[0] for name, tensor in named.items()}, *(tensor[0] for tensor in tensors))
        return tuple(output[None] for output in made) if isinstance(made, tuple) else made[None]


class _Model(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Function, *tensors: Tensor) -> Any:
        return function(self.model, *tensors)


def _forward(model: nn.Module, *tensors: Tensor) -> Any:
    return model(*tensors)


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors [batch, ...] as [clients, batch, ...], padded with zeros; missing rows are copies of the first."""
    if len({tensor.shape for tensor in tensors}) == 1:
        return torch.stack(list(tensors))
    size = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
    out = tensors[0].new_zeros(len(tensors), *size)
    for to, tensor in zip(out, tensors, strict=True):
        to[(slice(tensor.shape[0]), *map(slice, tensor.shape[1:]))] = tensor
        to[tensor.shape[0] :] = to[0]
    return out
