from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from fedray.storage import serialize


class Call:
    """An object that pickles as a call: unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    state = {
        "params": np.arange(6, dtype=np.float32).reshape(2, 3),
        "tensor": torch.arange(3),
        "nested": {"labels": ["yes", "nein", "où"], "none": None, "pairs": [[1, 2.5], []], "empty": {}},
        "bytes": b"\x00\xff",
        "seed": 2**63 - 1,
        "flag": True,
        "scalar": np.float64(0.1),
        "pair": (1, 2),
        3: "a number as a key",
    }
    size = serialize.save(state, path)
    assert size == path.stat().st_size
    found = serialize.load(path)
    assert np.array_equal(found["params"], state["params"]) and found["params"].dtype == np.float32
    assert isinstance(found["tensor"], np.ndarray) and found["tensor"].tolist() == [0, 1, 2]
    assert found["pair"] == [1, 2]
    rest = {key: value for key, value in state.items() if key not in ("params", "tensor", "pair")}
    assert {key: found[key] for key in rest} == rest and type(found["scalar"]) is float
    assert list(tmp_path.iterdir()) == [path]


def test_arrays_as_they_come(tmp_path: Path) -> None:
    """Read-only arrays (from the object store), views, scalars, empty arrays and torch parameters are saved."""
    shared = np.arange(5, dtype=np.float32)
    shared.flags.writeable = False
    state = {
        "shared": shared,
        "view": shared[::2],
        "reversed": shared[::-1],
        "scalar": np.array(3.0),
        "empty": np.zeros((0, 4), np.int64),
    }
    serialize.save(state, tmp_path / "state.pt")
    found = serialize.load(tmp_path / "state.pt")
    assert all(np.array_equal(found[name], array) and found[name].dtype == array.dtype for name, array in state.items())
    found["shared"] += 1  # a copy that can be written
    assert shared[0] == 0
    serialize.save({"weight": torch.nn.Parameter(torch.ones(2))}, tmp_path / "parameter.pt")
    assert serialize.load(tmp_path / "parameter.pt")["weight"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "small", [np.zeros(1_000_000, np.float32)[:3], torch.zeros(1_000_000)[:3]], ids=["array", "tensor"]
)
def test_a_view_costs_what_it_shows(tmp_path: Path, small: object) -> None:
    assert serialize.save({"small": small}, tmp_path / "state.pt") < 10_000


@pytest.mark.parametrize("value", [{1, 2}, object(), Path("x"), 1j], ids=lambda value: type(value).__name__)
def test_what_could_not_be_read_is_not_written(tmp_path: Path, value: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        serialize.save({"deep": [{"inside": value}]}, tmp_path / "state.pt")
    assert not list(tmp_path.iterdir())


def test_a_pickled_call_is_refused_and_not_made(tmp_path: Path) -> None:
    target, path = tmp_path / "made", tmp_path / "state.pt"
    torch.save({"params": torch.zeros(2), "extra": Call(target)}, path)
    with pytest.raises(ValueError, match=r"state\.pt: is not a state that fedray can read"):
        serialize.load(path)
    assert not target.exists()
    path.write_bytes(pickle.dumps(Call(target)))
    with pytest.raises(ValueError, match=r"state\.pt"):
        serialize.load(path)
    assert not target.exists()
    pickle.loads(path.read_bytes())
    assert target.is_dir()  # the planted pickle does work


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_file_cut_short_is_named(tmp_path: Path, share: float) -> None:
    path = tmp_path / "state.pt"
    serialize.save({"params": np.zeros(1000, np.float32)}, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ValueError, match=r"state\.pt: is not a state that fedray can read \(cut short"):
        serialize.load(path)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        serialize.load(tmp_path / "state.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ValueError, match=r"list\.pt: holds a list, not a state"):
        serialize.load(tmp_path / "list.pt")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.pt"):
        serialize.load(tmp_path / "text.pt")


def test_equal_tensors_give_equal_files(tmp_path: Path) -> None:
    """torch.save writes the name of a path that it is given into the file, and temporary names differ."""
    for name in ("model.pt", "other.pt"):
        serialize.save_tensors({"weight": torch.arange(6.0), "bias": torch.zeros(2)}, tmp_path / name)
    assert (tmp_path / "model.pt").read_bytes() == (tmp_path / "other.pt").read_bytes()
    assert torch.load(tmp_path / "model.pt", weights_only=True)["weight"].tolist() == [0, 1, 2, 3, 4, 5]
