"""Checkpoints and client states of runs with many clients: a round writes and scans only its cohort."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedray.core.types import ServerState
from fedray.runs.client_states import MODELS, ClientStore, Written
from fedray.runs.folder import ClientRecord, Progress, RunFolder
from fedray.runs.retention import Retention

MANY, COHORT = 10_000, 20
WRITTEN = Written(1, 1000, "ab")


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run" if request.param == "disk" else request.getfixturevalue("bucket")())


def begun() -> Progress:
    made = random.Random(0)
    clients = {
        f"client-{number}": ClientRecord(WRITTEN, 1, 0, 1, {"examples": 3.0, "loss": made.random()})
        for number in range(MANY)
    }
    return Progress(ServerState(np.zeros(5, np.float32)), 1, clients)


def play(before: Progress) -> Progress:
    """Play a round, which leaves the progress before it as it is."""
    made, done, clients = random.Random(before.round), before.round + 1, dict(before.clients)
    for name in [*made.sample(sorted(clients), COHORT), f"new-{done}"]:
        record = clients.get(name, ClientRecord())
        state, report = replace(WRITTEN, version=done), {"wer": made.random()}
        clients[name] = replace(record, state=state, rounds=record.rounds + 1, report=report)
    return Progress(before.state, done, clients, before.totals)


def table_bytes(folder: RunFolder, round: int) -> tuple[int, int]:
    """Bytes of a checkpoint's table of clients, which checkpoints share, and of its table of changes."""
    found = {"clients": 0, "changed": 0}
    for name in folder.storage.files(place := f"checkpoints/round_{round:06d}"):
        if (part := name.partition(".")[0]) in found:
            found[part] = len(folder.storage.read(f"{place}/{name}"))
    return found["clients"], found["changed"]


def test_a_checkpoint_writes_the_cohort_and_not_all_clients(folder: RunFolder, tmp_path: Path) -> None:
    progress = begun()
    folder.save(progress)
    whole, none = table_bytes(folder, 1)
    assert whole > 100_000 and none == 0
    written, tables, kept = 0, 0, {}
    for _ in range(60 if folder.root else 12):
        progress = play(progress)
        folder.save(progress)
        shared, changed = table_bytes(folder, progress.round)
        tables += not changed
        written += changed or shared
        kept[progress.round] = dict(progress.clients)
        folder.prune({progress.round, progress.round - 1})
    assert written < (0.35 if folder.root else 0.6) * whole * len(kept), "not the whole table a round"
    assert tables == (1 if folder.root else 0) or tables <= 3
    for round in (progress.round - 1, progress.round):
        loaded = RunFolder(folder.storage.local or folder.storage._uri).load(round)  # type: ignore[attr-defined]
        assert loaded.clients == kept[round] and list(loaded.clients) == list(kept[round])
    folder.save(progress)  # the same round again, as at the end of a run
    assert folder.load(progress.round).clients == progress.clients


def test_a_copy_of_the_folder_and_a_damaged_table(tmp_path: Path) -> None:
    """A copy needs no links; the manifest of a checkpoint has the hash of each file."""
    folder, progress = RunFolder(tmp_path / "run"), begun()
    for _ in range(3):
        folder.save(progress)
        progress = play(progress)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert RunFolder(tmp_path / "copy").load(3).clients == folder.load(3).clients
    changed = tmp_path / "copy" / "checkpoints" / "round_000003" / "changed.parquet"
    for damage in (lambda: changed.write_bytes(changed.read_bytes()[:-1]), changed.unlink):
        damage()
        with pytest.raises(ValueError, match=r"round_000003/changed.parquet: is missing or has changed since"):
            RunFolder(tmp_path / "copy").load(3)


def test_where_files_cannot_be_linked_they_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr("os.link", refuse)
    folder, progress = RunFolder(tmp_path), begun()
    folder.save(progress)
    progress = play(progress)
    folder.save(progress)
    folder.prune({2})
    assert folder.load(2).clients == progress.clients and table_bytes(folder, 2)[1]


def test_states_that_a_checkpoint_names_stay_and_no_others(tmp_path: Path) -> None:
    """The states equal those found by a scan of all checkpoints, while best rounds and checkpoints come and go."""
    made, under_way = random.Random(3), random.Random(4)
    folder, states = RunFolder(tmp_path), ClientStore(tmp_path / "states")
    names = [f"client-{number}" for number in range(6)]
    begun = {name: ClientRecord(states.save(name, 0, {"x": 0})) for name in names}
    progress = Progress(ServerState(np.zeros(1, np.float32)), 0, begun)
    folder.save(progress)
    retention = Retention(folder, states, 2, lambda: None)
    for round in range(1, 80):
        if round % 25 == 0:  # a kill and a resume
            retention = Retention(folder, states, 2, lambda: None)
            newest = max(folder.saved_rounds())
            progress, round = folder.load(newest), newest + 1
            retention.resume(folder.saved_rounds())
        superseded, clients = [], dict(progress.clients)
        for name in made.sample(names, 2):
            superseded.append((name, clients[name].state.version))
            clients[name] = ClientRecord(states.save(name, round, {"x": round}))
        best = {"round": round, "value": 1.0} if made.random() < 0.1 else progress.best
        models = {model: written for model, written in progress.models.items() if under_way.random() < 0.7}
        models[round] = states.save(MODELS, round, {"x": round})
        progress = Progress(progress.state, round, clients, best=best, models=models)
        retention.note_best(progress)
        if made.random() < 0.5 or best is not None and best["round"] == round:
            folder.save(progress)
            retention.prune(progress)
        retention.collect(superseded, progress)
        there = [progress, *map(folder.load, folder.saved_rounds())]
        named = {states.name(client, written.version) for one in there for client, written in one.files()}
        assert set(states.storage.files()) == named
    assert sum(map(len, retention._held.values())) <= len(names) * len(folder.saved_rounds())
    assert set(retention._best) <= set(folder.saved_rounds()) | {progress.round}
