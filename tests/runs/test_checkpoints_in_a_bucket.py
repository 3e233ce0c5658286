"""Checkpoints on object storage: uploads that are cut off or fail, and a download."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedray.runs.folder import RunFolder
from fedray.storage.base import Storage
from fedray.storage.files import StorageError
from tests.runs.test_checkpoints import progress


def dying(storage: Storage, monkeypatch: pytest.MonkeyPatch, error: BaseException, after: int) -> None:
    """Let writes to `storage` succeed `after` times, then raise `error`."""
    write, left = storage.write, iter(range(after))

    def failing(name: str, data: bytes) -> None:
        if next(left, None) is None:
            raise error
        write(name, data)

    monkeypatch.setattr(storage, "write", failing)


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_an_upload_that_was_cut_off_does_not_count(
    bucket: Callable[[], str], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    place = bucket()
    RunFolder(place).save(progress(3))
    for round in (3, 4):
        folder = RunFolder(place)
        dying(folder.checkpoints.storage, monkeypatch, KeyboardInterrupt(), after)
        with pytest.raises(KeyboardInterrupt):
            folder.save(progress(round, up_bytes=456))
        folder = RunFolder(place)
        assert folder.saved_rounds() == [3] and folder.load(3).totals["up_bytes"] == 123
    folder.prune({3})
    assert not [name for name in folder.storage.files() if "round_000004" in name]
    folder.save(progress(3, up_bytes=789))
    assert (
        folder.load(3).totals["up_bytes"] == 789 and len(folder.storage.files()) == 4
    )  # what the killed upload left is gone


def test_a_store_that_fails_in_the_middle(bucket: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(bucket())
    folder.save(progress(3))
    for round in (4, 3):
        with monkeypatch.context() as patch:
            dying(folder.checkpoints.storage, patch, StorageError("the first error"), 2)
            with pytest.raises(StorageError, match="the first error"):
                folder.save(progress(round))
        assert folder.load(3).round == 3 and len(folder.storage.files()) == 4  # nothing of the failed one is left


def test_a_checkpoint_can_be_taken_home(bucket: Callable[[], str], tmp_path: Path) -> None:
    folder = RunFolder(bucket())
    folder.save(progress(3))
    folder.storage.download("", tmp_path)
    assert RunFolder(tmp_path).saved_rounds() == [3] and RunFolder(tmp_path).load(3).clients == progress(3).clients
