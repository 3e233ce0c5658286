"""Updates held on the local disk for the whole cohort take few open files, and a full disk is no client's fault."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedray.core.strategies import LayerwisePruning
from fedray.core.types import Client, Received, RunError, Update
from fedray.engine.driver import session
from fedray.engine.jobs.holding import Holder, local_disk
from fedray.engine.lane.lane import Lane
from fedray.runs.folder import RunFolder
from tests.engine import toys

SIZE = 1000


@contextmanager
def limited(kind: int, value: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails with EFBIG
    resource.setrlimit(kind, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)
        signal.signal(signal.SIGXFSZ, ignored)


def vector(number: int) -> np.ndarray:
    return np.full(SIZE, number, np.float32)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts the open files in /proc")
def test_two_thousand_updates_take_one_open_file(tmp_path: Path) -> None:
    holder, limit = Holder(tmp_path / "held", 4 * SIZE * 10), open_files() + 20
    with limited(resource.RLIMIT_NOFILE, limit):
        for lane in range(2):
            keep = holder.open(3, lane)
            for number in range(1000):
                keep(f"{number}", vector(1000 * lane + number))
                if number == 500:
                    assert holder.updates(3, lane)["500"][0] == 1000 * lane + 500
        for lane in range(2):
            found = holder.updates(3, lane)
            assert list(found) == [f"{number}" for number in range(1000)]
            stacked = np.stack([update[:2] for update in found.values()])
            assert stacked[:, 0].tolist() == [1000 * lane + number for number in range(1000)]
    assert [path.name for path in (tmp_path / "held").iterdir()] == ["3.f32"]


def test_a_lane_that_is_trained_again_has_its_new_updates_alone(tmp_path: Path) -> None:
    holder = Holder(tmp_path / "held", 0.0)
    for attempt in (1, 2):
        keep = holder.open(0, 0)
        keep("a", vector(attempt))
        assert holder.updates(0, 0)["a"].tolist() == [attempt] * SIZE
        assert list(holder.updates(0, 0)) == ["a"]
        keep(f"fails in attempt {3 - attempt}", vector(attempt))
    keep("strided", np.arange(2 * SIZE, dtype=np.float32)[::2])
    assert holder.updates(0, 0)["strided"].tolist() == list(range(0, 2 * SIZE, 2))
    holder.open(1, 0)("b", vector(7))
    assert holder.updates(1, 0)["b"].tolist() == [7] * SIZE
    assert [path.name for path in (tmp_path / "held").iterdir()] == ["1.f32"]
    holder.clear()
    assert not (tmp_path / "held").exists()


def test_an_array_that_is_used_again_changes_no_update(tmp_path: Path) -> None:
    keep, reused = (holder := Holder(tmp_path / "held", 4 * SIZE)).open(0, 0), vector(1)
    for client in ("in memory", "on disk"):
        reused[:] = 1
        keep(client, reused)
        reused[:] = 2
    assert [update.tolist() for update in holder.updates(0, 0).values()] == [[1] * SIZE] * 2


def test_a_disk_that_takes_no_more_is_named_with_the_remedy(tmp_path: Path) -> None:
    keep = Holder(tmp_path / "held", 4 * SIZE).open(0, 0)
    with limited(resource.RLIMIT_FSIZE, 4 * SIZE * 3), pytest.raises(RunError) as caught:
        for number in range(10):
            keep(f"{number}", vector(number))
    assert str(caught.value).startswith(f"{tmp_path}/held on ")
    for words in ("File too large", "TMPDIR", "engine.hold_gb", "`fedray resume`"):
        assert words in str(caught.value)


def test_a_lane_that_cannot_note_its_client_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunError, match=rf"{tmp_path}/file on .*: temporary files cannot be written: .*TMPDIR"),
        Lane(0, 0, (), marker=tmp_path / "file" / "lane_0").marking(),
    ):
        pass
    with pytest.raises(RunError, match="No space left on device"), local_disk(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Cramped(toys.Toy):
    """A toy whose actors' files cannot grow beyond one and a half updates."""

    def client_update(self, client: Client, received: Received) -> Update:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6 * SIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return super().client_update(client, received)


@pytest.mark.nightly
def test_a_full_local_disk_ends_the_run_and_blames_no_client(cluster: None, tmp_path: Path) -> None:
    session.ship(sys.modules[__name__])
    with pytest.raises(RunError, match=r"held-\d+ on .*: File too large.*TMPDIR.*engine\.hold_gb"):
        toys.run(tmp_path, strategy=LayerwisePruning(), rounds=1, hold_gb=0.0, algorithm=Cramped)
    assert RunFolder(tmp_path).rows("failures.jsonl") == []
