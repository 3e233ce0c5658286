"""Client states that a checkpoint names: a resumed run finds all of them, or says which one is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedray.core.types import RunError
from fedray.runs.client_states import ClientStore
from fedray.runs.folder import ClientRecord, RunFolder
from fedray.runs.retention import Retention
from tests.runs.test_checkpoints import progress


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run" if request.param == "disk" else request.getfixturevalue("bucket")())


def states(folder: RunFolder) -> ClientStore:
    return folder.states


def played(folder: RunFolder) -> None:
    """Write two rounds, each with a checkpoint and a state of each of three clients."""
    for round in (1, 2):
        after = progress(round)
        after.clients.clear()
        for client in ("a", "b", "c"):
            after.clients[client] = ClientRecord(states(folder).save(client, round, {"moments": np.full(100, round)}))
        folder.save(after)


def resume(folder: RunFolder) -> None:
    Retention(folder, states(folder), 2, lambda: None).resume(folder.saved_rounds())


def test_states_that_are_lost_are_named_with_the_way_out(folder: RunFolder) -> None:
    played(folder)
    resume(folder)
    states(folder).remove("b", 2)
    checkpoint = r"round_000002 to continue from the previous checkpoint"
    with pytest.raises(RunError, match=rf"b/000002\.pt: is missing\. It is the state of client b: put .*{checkpoint}"):
        resume(folder)
    states(folder).storage.write("a/000002.pt", b"short")
    with pytest.raises(
        RunError, match=r"a/000002\.pt: has changed since it was written \(5 bytes of .*client a, and 1 more are"
    ):
        resume(folder)
    assert "a/000002.pt" in states(folder).storage.files()  # resuming has removed nothing
    folder.storage.remove("checkpoints/round_000002")
    resume(folder)
    assert states(folder).storage.files() == ["a/000001.pt", "b/000001.pt", "c/000001.pt"]


def test_what_a_trial_refers_to_stays_with_its_best_round_and_all_that_is_newer(folder: RunFolder) -> None:
    """Round 3 is pinned, and its best round is 2; that of 6 and 7 is 6. A new driver takes over in round 6."""
    best = {1: 1, 2: 2, 3: 2, 4: 2, 5: 2, 6: 6, 7: 6}
    retention = Retention(folder, states(folder), 1, lambda: {3})
    for round in range(8):
        after = progress(round)
        after.clients.clear()
        after.best = {"round": best[round], "value": 1.0} if round else None
        if round == 6:
            retention = Retention(folder, states(folder), 1, lambda: {3})
            retention.resume(folder.saved_rounds())
        retention.note_best(after)
        folder.save(after)
        retention.prune(after)
    assert folder.saved_rounds() == [0, 2, 3, 4, 5, 6, 7]
    Retention(folder, states(folder), 1, lambda: None).prune(folder.load(7))
    assert folder.saved_rounds() == [0, 6, 7], "without a sweep: the first, the best and the newest"


def test_the_best_round_of_a_checkpoint_to_fall_back_on_stays(folder: RunFolder) -> None:
    """If the newest checkpoint is damaged, a run goes on from the one before it."""
    best = {1: 1, 2: 2, 3: 2, 4: 2, 5: 5}
    retention = Retention(folder, states(folder), 2, lambda: None)
    for round in range(6):
        after = progress(round)
        after.clients.clear()
        after.best = {"round": best[round], "value": 1.0} if round else None
        retention.note_best(after)
        folder.save(after)
        retention.prune(after)
    assert folder.saved_rounds() == [0, 2, 4, 5]
