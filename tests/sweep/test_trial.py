"""A trial that takes over another's checkpoint continues from it, whatever becomes of the other trial."""

from __future__ import annotations

import math
import shutil
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import ray

from fedray.core.types import ServerState
from fedray.runs.client_states import ClientStore
from fedray.runs.folder import ClientRecord, Progress, RunFolder
from fedray.sweep.trial import Trial, take_over


def played(folder: Path, rounds: int) -> RunFolder:
    """Write a run: client "a" takes part in every round, "b" in the first one only; round 1 is the best."""
    run, states = RunFolder(folder), ClientStore(folder / "states")
    clients: dict[str, ClientRecord] = {}
    for done in range(rounds + 1):
        for client in ("a", "b") if done == 1 else ("a",) if done else ():
            written = states.save(client, done, {"round": done})
            clients = clients | {client: ClientRecord(written, rounds=done, last_round=done)}
        best = {"round": 1, "value": 0.5} if done else None
        run.save(Progress(ServerState(np.full(3, done, np.float32)), done, dict(clients), best=best))
    run.rewrite("metrics.jsonl", [{"round": done} for done in range(1, rounds + 1)])
    return run


def test_a_run_that_is_taken_over_has_checkpoints_states_and_rows_of_its_own(tmp_path: Path) -> None:
    source, target = played(tmp_path / "source", 4), RunFolder(tmp_path / "target")
    take_over(source, 3, target)
    shutil.rmtree(tmp_path / "source")
    assert target.saved_rounds() == [0, 1, 3]  # the initial, the best and the current one
    progress = target.load(3)
    assert progress.state.params.tolist() == [3, 3, 3] and progress.best == {"round": 1, "value": 0.5}
    assert [row["round"] for row in target.rows("metrics.jsonl")] == [1, 2, 3]
    states = ClientStore(tmp_path / "target" / "states")
    named = {found for saved in (1, 3) for found in target.load(saved).files()}
    assert {(client, written.version) for client, written in named} == {("a", 1), ("a", 3), ("b", 1)}
    assert all(states.load(client, written) == {"round": written.version} for client, written in named)


def test_states_are_linked_not_copied(tmp_path: Path) -> None:
    source, target = played(tmp_path / "source", 2), RunFolder(tmp_path / "target")
    take_over(source, 2, target)
    mine, theirs = (
        ClientStore(tmp_path / name / "states").storage.local / "a" / "000002.pt" for name in ("source", "target")
    )
    assert mine.stat().st_ino == theirs.stat().st_ino
    ClientStore(tmp_path / "target" / "states").save("a", 2, {"round": 99})  # saving again makes a new file
    assert ClientStore(tmp_path / "source" / "states").load("a", source.load(2).clients["a"].state) == {"round": 2}


def test_a_trial_goes_on_in_its_own_folder_whatever_its_configuration(tmp_path: Path) -> None:
    """`carried_on` then reports what has changed; only another trial's checkpoint starts a new folder."""
    trial = Trial.__new__(Trial)
    trial.name, trial.source, trial.study = "a", None, SimpleNamespace(place=str(tmp_path))  # type: ignore[assignment]
    assert trial._choose() == ("run", True)
    for name in ("a", "b"):
        played(tmp_path / name / "run", 2).write_text("config.yaml", "rounds: 9\n")
    assert trial._choose() == ("run", False)
    trial.source = {"trial": "a", "run": "run", "round": 2}
    assert trial._choose() == ("run", False)
    trial.source = {"trial": "b", "run": "run", "round": 1}
    assert trial._choose() == ("run-01", True) and RunFolder(tmp_path / "a" / "run-01").saved_rounds() == [0, 1]


def test_a_round_without_a_score_keeps_the_last_one() -> None:
    """Tune ranks a trial by its last row, and stops a trial whose row lacks the score."""
    trial = Trial.__new__(Trial)
    trial.study, trial.run, trial.metric = SimpleNamespace(metric="dev/wer"), "run", math.nan  # type: ignore[assignment]
    rows = [{"round": 1, "dev/wer": None}, {"round": 2, "dev/wer": 50.0}, {"round": 3, "dev/wer": None}, {"round": 4}]
    trial._reports = iter(rows)
    assert math.isnan(trial.step()["dev/wer"]), "a number: schedulers multiply it by 1 or -1"
    assert [trial.step() for _ in range(3)] == [{"run": "run", "round": n, "dev/wer": 50.0} for n in (2, 3, 4)]
    assert trial.round == 4


def test_a_pointer_names_no_round_that_tune_has_not_heard_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is a round ahead. A trial that takes over the pointer continues from its round, and keeps it."""
    monkeypatch.setattr(ray, "get", lambda told: told)
    told: list[list[int]] = []
    trial, other = Trial.__new__(Trial), Trial.__new__(Trial)
    trial.name, trial.run, trial.round, trial.folder = "a", "run", 2, played(tmp_path / "run", 3)
    trial.driver = SimpleNamespace(pin=SimpleNamespace(remote=told.append))  # type: ignore[assignment]
    trial.pinned, other.pinned = deque([0], maxlen=3), deque([0], maxlen=3)
    trial.save_checkpoint(str(tmp_path))
    assert told == [[0, 2]]
    other.load_checkpoint(str(tmp_path))
    assert other.source == {"trial": "a", "run": "run", "round": 2}
    assert other.round == 2 and list(other.pinned) == [0, 2]
