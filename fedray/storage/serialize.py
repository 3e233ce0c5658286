"""States on disk: torch.save of plain data, read with weights_only=True, which executes nothing."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from fedray.storage.files import write_atomically, write_whole


def save_tensors(value: Any, path: Path) -> None:
    """Write what torch.load reads, atomically. Equal values give equal bytes.

    Given a path, torch.save would put its name, which is temporary, into the file.
    """

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            torch.save(value, file)

    write_atomically(path, write)


def _tensors(value: Any, name: str, copy: bool) -> Any:
    """Arrays as tensors. TypeError: `name`, or a part of it, cannot be written."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        # Arrays of the object store are read-only, and torch.save writes the whole array behind a view.
        own = value.base is None and value.flags.writeable and value.flags.c_contiguous
        return torch.from_numpy(value if own and not copy else np.array(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _tensors(item, f"{name}[{key!r}]", copy) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tensors(item, f"{name}[{place}]", copy) for place, item in enumerate(value)]
    if isinstance(value, bytes) and not value:
        raise TypeError(
            f"{name}: a state holds no empty bytes, which torch.load(weights_only=True) refuses: use None or ''"
        )
    if value is None or isinstance(value, str | int | float | bool | bytes):
        return value
    raise TypeError(f"{name}: a state holds arrays, numbers, strings, lists and dicts, not {type(value).__name__}")


def _checked(state: Any, name: str, copy: bool = False) -> dict[str, Any]:
    """The state with arrays as tensors. TypeError: it is no dict, or a part of it cannot be written.

    `copy`: no tensor shares the memory of an array.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"{name} is a dict, such as {{'model': array}}, not {type(state).__name__}")
    return {key: _tensors(value, f"{name}[{key!r}]", copy) for key, value in state.items()}


def _arrays(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {key: _arrays(item) for key, item in value.items()}
    return [_arrays(item) for item in value] if isinstance(value, list) else value


def plain(state: Mapping[str, Any], name: str = "state") -> dict[str, Any]:
    """The state as it would come back from disk: the same types, whether it was written or not.

    TypeError: a part of it, which the message calls `name['key']`, cannot be written.
    """
    restored: dict[str, Any] = _arrays(_checked(state, name, copy=True))
    return restored


def dumps(state: Mapping[str, Any]) -> bytes:
    """The bytes of a state, which `loads` reads without executing anything."""
    buffer = io.BytesIO()
    dump(state, buffer)
    return buffer.getvalue()


def dump(state: Mapping[str, Any], file: IO[bytes]) -> None:
    """Write the bytes of a state to an open file, without a copy of them in memory."""
    torch.save(_checked(state, "state"), file)


def save(state: Mapping[str, Any], path: Path) -> int:
    """Write a state atomically; returns the number of bytes."""
    data = dumps(state)
    write_whole(path, data)
    return len(data)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote, with numpy arrays for tensors. ValueError: the file is damaged or holds other data."""
    return read(path, path)


def loads(data: bytes, name: str) -> dict[str, Any]:
    """Read the bytes that `dumps` made; the message of the ValueError contains `name`."""
    return read(io.BytesIO(data), name)


def read(source: Path | IO[bytes], name: object) -> dict[str, Any]:
    """Read what `save` or `dump` wrote, from a path or an open file; see `load` and `loads`."""
    try:
        # torch.load ignores the checksums of its zip archive: a flipped bit would change a number.
        with zipfile.ZipFile(source) as archive:
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"the checksum of {damaged} is wrong")
            if marked := [info.filename for info in archive.infolist() if info.external_attr]:
                # torch.load takes such a file for a folder, and leaves its array uninitialised.
                raise ValueError(f"{marked[0]} has attributes, which torch.save writes none of")
        if not isinstance(source, Path):
            source.seek(0)
        state = _arrays(torch.load(source, map_location="cpu", weights_only=True))
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises many kinds for broken files: pass on its message
        raise ValueError(
            f"{name}: is not a state that fedray can read (cut short, or not plain data): {error}"
        ) from error
    if not isinstance(state, dict):
        raise ValueError(f"{name}: holds a {type(state).__name__}, not a state")
    return state
