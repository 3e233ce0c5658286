"""Checkpoints are written while the next round trains, in order, and errors are not lost."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fedray.core.types import ServerState
from fedray.engine.driver.saving import Saving
from fedray.runs.folder import ClientRecord, Progress, RunFolder
from fedray.runs.retention import Retention


class Steps:
    """A folder and its retention that write down what is asked of them. Saving waits until it is let go."""

    def __init__(self, fails: bool = False) -> None:
        self.done: list[str] = []
        self.go, self.fails = threading.Event(), fails

    def save(self, progress: Progress) -> None:
        assert self.go.wait(10)
        if self.fails:
            raise OSError("the disk is full")
        self.done.append(f"saved {progress.round} with {sorted(progress.clients)}")

    def prune(self, progress: Progress) -> None:
        self.done.append(f"pruned {progress.round}")

    def collect(self, superseded: list[tuple[str, int]], progress: Progress) -> None:
        self.done.append(f"collected {superseded}")

    def note_best(self, progress: Progress) -> None:
        self.done.append(f"best {progress.round}")


def saving(steps: Steps, beside: bool = True) -> Saving:
    return Saving(cast(RunFolder, steps), cast(Retention, steps), lambda: beside)


def progress(round: int, *clients: str) -> Progress:
    return Progress(ServerState(np.zeros(1, np.float32)), round, {client: ClientRecord() for client in clients})


def test_the_next_round_trains_meanwhile_and_changes_nothing_of_it() -> None:
    steps, now = Steps(), progress(1, "a")
    one = saving(steps)
    assert one.save(now, [("a", 0)], due=True) is None and steps.done == ["best 1"]
    now.clients["b"] = ClientRecord()
    steps.go.set()
    seconds = one.save(progress(2, "a", "b"), [], due=False)
    assert seconds is not None and seconds > 0
    assert steps.done[:4] == ["best 1", "saved 1 with ['a']", "pruned 1", "collected [('a', 0)]"]
    assert one.wait() is None and steps.done[4:] == ["best 2", "collected []"]
    one.close()


def test_an_error_is_raised_by_the_next_call() -> None:
    steps = Steps(fails=True)
    steps.go.set()
    one = saving(steps)
    one.save(progress(1), [], due=True)
    with pytest.raises(OSError, match="the disk is full"):
        one.save(progress(2), [], due=True)
    one.close()
    assert "pruned 1" not in steps.done


def test_a_sweep_waits_for_each_checkpoint() -> None:
    steps = Steps()
    steps.go.set()
    one = saving(steps, beside=False)
    assert one.save(progress(1), [], due=True) is not None
    assert steps.done[-1] == "collected []"
    one.close()


def test_a_large_state_is_written_without_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the bytes that it would have from memory; the hash is that of the file."""
    from fedray.storage import serialize

    state, folder = np.arange(100_000, dtype=np.float32), RunFolder(tmp_path)
    expected = serialize.dumps({"params": state, "extra": {"m": state[::2]}})
    monkeypatch.setattr(serialize, "dumps", lambda state: SimpleNamespace())  # a copy in memory
    folder.save(Progress(ServerState(state, {"m": state[::2]}), 1))
    assert (tmp_path / "checkpoints" / "round_000001" / "server.pt").read_bytes() == expected
    found: Any = folder.load(1)
    assert found.state.params.tobytes() == state.tobytes() and found.state.extra["m"].tobytes() == state[::2].tobytes()
