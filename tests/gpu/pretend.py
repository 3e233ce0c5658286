"""A pretend device: its tensors are in main memory, and refuse what a GPU's tensors would refuse.

torch sees tensors on the device "meta". An operation on them is computed with the tensors behind them, in main memory.
It fails if it mixes them with ordinary tensors, as on a GPU. So a test without a GPU finds code that forgets to move a
tensor. CUDA's kernels, memory and determinism are not pretended, and neither is `tensor.data = other`: parameters that
should be views of one vector are not, so the numbers after training mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

DEVICE = "meta"
# Operations that may mix devices: copies, indexing, and those that take lengths (CTC, packed sequences).
COPIES = ("copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_")
LENGTHS = ("_ctc_loss", "_ctc_loss_backward", "_pack_padded_sequence", "_pack_padded_sequence_backward")
MIXED = tuple(f"aten::{name}" for name in (*COPIES, *LENGTHS))


class There(Tensor):
    """A tensor on the pretend device."""

    here: Tensor  # the tensor in main memory

    @staticmethod
    def __new__(cls: type[There], here: Tensor) -> There:
        return Tensor._make_wrapper_subclass(
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=DEVICE,
        )

    def __init__(self, here: Tensor) -> None:
        self.here = here

    def tolist(self) -> Any:
        return self.here.tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(
        cls, op: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return dispatch(op, args, dict(kwargs or {}))


@contextmanager
def pretending() -> Iterator[None]:
    """Make the pretend device available while the context is open."""
    with _Dispatch(), _Function():
        yield


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(
        self, op: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return dispatch(op, args, dict(kwargs or {}))


class _Function(TorchFunctionMode):
    """Intercepts torch.tensor, which makes tensors on "meta" without values and does not go through the dispatcher."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.tensor and (device := kwargs.pop("device", None)) is not None:
            return torch.tensor(*args, **kwargs).to(device)
        return function(*args, **kwargs)


def dispatch(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Compute an operation in main memory. RuntimeError: a GPU would refuse it."""
    given = [value for value in tree_iter((args, kwargs)) if isinstance(value, Tensor)]
    there = [value for value in given if isinstance(value, There)]
    name, wanted = op._schema.name, kwargs.get("device")
    to_there = bool(there) if wanted is None else torch.device(wanted).type == DEVICE
    if there and name not in MIXED and (strays := [one for one in given if not isinstance(one, There) and one.dim()]):
        shapes = ", ".join(str(tuple(stray.shape)) for stray in strays)
        raise RuntimeError(
            f"{name}: expected all tensors to be on the same device, but these are on the processor: {shapes}"
        )
    if to_there and isinstance(kwargs.get("generator"), torch.Generator):
        raise RuntimeError(f"{name}: expected a generator of the device, but this one is of the processor")
    if wanted is not None and to_there:
        kwargs["device"] = torch.device("cpu")
    if there and torch.Tag.inplace_view in op.tags:  # the shape of the wrapper changes too
        with no_dispatch():
            op(*args, **kwargs)
    known = {id(one.here): one for one in there}  # an in-place operation returns its argument
    args, kwargs = tree_map(_behind, (tuple(args), kwargs))
    found = op(*args, **kwargs)
    if not to_there or name == "aten::_local_scalar_dense":
        return found

    def wrapped(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else There(value)

    if name == "aten::_pack_padded_sequence":  # the batch sizes stay on the processor
        return wrapped(found[0]), found[1]
    return tree_map(wrapped, found)


def _behind(value: Any) -> Any:
    return value.here if isinstance(value, There) else value
