"""Features that one machine has computed are opened on another that lacks them in its cache."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedray.core.parallel import serial
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.features.store import FeatureStore, build_features
from tests.data.features.test_features import manifest_of


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return the pickle of a store that a machine with the cache `one` sends to one with the cache `two`."""
    monkeypatch.setenv("FEDRAY_SHARED_CACHE", str(tmp_path / "shared"))
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "one"))
    (tmp_path / "audio").mkdir()
    store = build_features(manifest_of(tmp_path / "audio", 3), LogMelSettings(), tmp_path / "one" / "features", serial)
    np.save(tmp_path / "expected.npy", np.concatenate([store[row] for row in range(3)]))
    (tmp_path / "one").rename(tmp_path / "not here")
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "two"))
    return pickle.dumps(store)


def test_they_are_fetched(sent: bytes, tmp_path: Path) -> None:
    store: FeatureStore = pickle.loads(sent)
    assert np.array_equal(np.concatenate([store[row] for row in range(3)]), np.load(tmp_path / "expected.npy"))
    again: FeatureStore = pickle.loads(pickle.dumps(store))  # sent on to a third machine
    assert again.bins == 40 and len(again) == 3 and not again.broken
    assert [path.name for path in (tmp_path / "two" / "features").iterdir() if path.is_dir()] == [store.folder.name]


def test_features_that_are_nowhere(sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(tmp_path / "shared")
    with pytest.raises(
        ValueError, match="one/features/features-.*: is not on .*nor is it in FEDRAY_SHARED_CACHE.* set FEDRAY_CACHE to"
    ):
        len(pickle.loads(sent))
    monkeypatch.delenv("FEDRAY_SHARED_CACHE")
    with pytest.raises(ValueError, match="FEDRAY_SHARED_CACHE is not set"):
        _ = pickle.loads(sent).bins


class Call:
    """Pickles as a call: unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("how", ["npy", "pickle"])
def test_a_pickle_planted_as_offsets_is_refused_and_not_run(tmp_path: Path, how: str) -> None:
    target, folder = tmp_path / "made", tmp_path / "features"
    folder.mkdir()
    (folder / "store.json").write_text(json.dumps({"bins": 40, "broken": {}}))
    if how == "npy":
        np.save(folder / "offsets.npy", np.array([Call(target)], object), allow_pickle=True)
    else:
        (folder / "offsets.npy").write_bytes(pickle.dumps(Call(target)))
    with pytest.raises(
        ValueError, match=r"offsets\.npy: is truncated, or not an array of numbers .*remove .*features$"
    ):
        len(FeatureStore(folder))
    assert not target.exists()
    np.load(folder / "offsets.npy", allow_pickle=True)
    assert target.is_dir()  # loaded as a pickle, it would have run
