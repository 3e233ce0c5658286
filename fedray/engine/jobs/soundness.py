"""Checks of what an algorithm returns: one wrong number, size or type would reach every client of the next round."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedray.core.types import Broadcast, Layer, RunError, ServerState, Update
from fedray.core.vectors import finite
from fedray.storage.serialize import plain


def sizes(layers: Sequence[Layer], broadcast: Broadcast) -> tuple[int, ...]:
    """The allowed lengths of a delta: that of the layers, or of all parameters if there are no layers.

    A delta may leave out the broadcast's constant parameters if the layers cover them.
    """
    end = layers[-1].stop if layers else sys.maxsize
    whole = end if end < sys.maxsize else broadcast.params.size
    covered = broadcast.constant if whole == broadcast.params.size else 0  # layers of products hold no frozen weights
    return (whole, whole - covered) if covered else (whole,)


def check_update(update: Update, sizes: Sequence[int] | None = None) -> None:
    """Check an update. ValueError: a vector is not float32 [n], or delta is neither empty nor of an allowed size."""
    _check_vector("the update's delta", update.delta)
    if sizes is not None and update.delta.size not in (0, *sizes):
        whole = " or ".join(f"{size:,}" for size in sizes)
        raise ValueError(
            f"the update's delta has {update.delta.size:,} numbers, the algorithm's layers have {whole}: return one "
            "difference for each parameter, or NOTHING"
        )
    for name, vector in update.vectors.items():
        _check_vector(f"the update's vector {name!r}", vector)


def check_state(state: ServerState, method: str, size: int | None = None) -> None:
    """Check a state. RunError: what `method` of the algorithm returned cannot be the state of the next round.

    `size`: how many parameters the state before had; None: there was none.
    """
    if not isinstance(state, ServerState):
        raise RunError(f"{method}: returned {type(state).__name__}, not a ServerState: does it end without `return`?")
    try:
        _check_vector("the server's new state: params", state.params)
    except ValueError as error:
        raise RunError(f"{method}: {error}") from error
    if size is not None and state.params.size != size:
        sizes = f"{state.params.size:,} parameters, the one before {size:,}"
        raise RunError(f"{method}: the server's new state has {sizes}")
    for name, numbers in (("params", state.params), *_arrays(state.extra, "extra")):
        if not finite(numbers):
            raise RunError(
                f"{method}: the server's new state holds NaN or infinite values in {name}: lower the learning rates of "
                "clients and server, or clip the updates (strategy.clip_norm); `fedray resume` continues from the last "
                "checkpoint"
            )


def written(state: ServerState, method: str) -> ServerState:
    """The state as it would come back from a checkpoint. RunError: `method` returned what cannot be written."""
    try:
        return ServerState(state.params, plain(state.extra, "extra"))
    except TypeError as error:
        raise RunError(f"{method}: {error}") from error


def _check_vector(what: str, vector: Any) -> None:
    if not isinstance(vector, np.ndarray):
        raise ValueError(f"{what} is a {type(vector).__name__}, not a numpy array: return float32 with one dimension")
    if vector.dtype != np.float32 or vector.ndim != 1:
        raise ValueError(
            f"{what} is {vector.dtype} {list(vector.shape)}, not float32 with one dimension: convert it with "
            "np.asarray(x, np.float32).ravel()"
        )


def _arrays(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The float arrays of a state, with their names."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _arrays(part, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _arrays(part, f"{name}[{index}]")
    elif isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield name, value.detach().float().cpu().numpy()
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        yield name, value
