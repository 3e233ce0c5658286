"""Versions of client states, and the log of events."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from fedray.core.types import RunError
from fedray.engine.telemetry.events import KEPT, Events
from fedray.runs.client_states import ClientStore, Written, folder_name, hash_of
from fedray.storage.files import StorageError
from tests.stores import small_disk


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ClientStore:
    return ClientStore(tmp_path / "states" if request.param == "disk" else request.getfixturevalue("bucket")())


def test_versions_of_a_client(store: ClientStore) -> None:
    one, four = (
        store.save("speaker/one", version, {"labels": ["yes"], "moments": np.full(3, version, np.float32)})
        for version in (1, 4)
    )
    assert store.load("speaker/one", one)["moments"].tolist() == [1, 1, 1]
    assert store.load("speaker/one", four) == {"labels": ["yes"], "moments": pytest.approx(np.full(3, 4))}
    assert [name.split("/")[1] for name in store.storage.files()] == ["000001.pt", "000004.pt"]
    store.remove("speaker/one", 1)
    store.remove("speaker/one", 1)
    says = r"speaker_one-\w+/000001.pt: is missing. It is the state of client speaker/one: put the file back, or"
    with pytest.raises(RunError, match=says):
        store.load("speaker/one", one)
    assert pickle.loads(pickle.dumps(store)).load("speaker/one", four)["labels"] == ["yes"]


def test_what_no_checkpoint_names_goes(store: ClientStore) -> None:
    store.keep_only(set())
    for client, versions in {"a": [0, 2, 5], "b": [3], "c": [6], "d": [1, 6], "e": [1, 2, 3]}.items():
        for version in versions:
            store.save(client, version, {"version": version})
    store.storage.write("a/.000002.pt.123.tmp", b"of a writer that was killed")
    store.remove_all([("e", 1), ("e", 3), ("e", 7)])
    store.keep_only({("a", 0), ("a", 2), ("b", 3), ("d", 1), ("e", 2)})
    assert store.storage.files() == ["a/000000.pt", "a/000002.pt", "b/000003.pt", "d/000001.pt", "e/000002.pt"]


def test_a_state_that_is_not_what_was_written_is_named(store: ClientStore) -> None:
    written = store.save("a", 1, {"moments": np.zeros(1000)})
    store.sync({"a": written})
    assert len(store.load("a", written)["moments"]) == 1000 and lost(store, written) == []
    data = store.storage.read("a/000001.pt")
    assert written == Written(1, len(data), hashlib.blake2b(data, digest_size=16).hexdigest())

    store.storage.write("a/000001.pt", data[:-100])
    cut = rf"a/000001\.pt: has changed since it was written \({len(data) - 100:,} bytes of {len(data):,}: cut short\?\)"
    with pytest.raises(
        RunError, match=cut + r"\. It is the state of client a: put the file back, or continue from an older"
    ):
        store.load("a", written)
    ((client, what),) = lost(store, written)
    assert client == "a" and re.search(cut, what)

    store.storage.write("a/000001.pt", data[:-100] + bytes(100))
    with pytest.raises(RunError, match=r"a/000001\.pt: has changed since it was written \(its hash differs\)"):
        store.load("a", written)
    assert lost(store, written) == []  # the size is right; the hash is checked on loading

    store.remove("a", 1)
    ((client, what),) = lost(store, written)
    assert client == "a" and what.endswith("a/000001.pt: is missing")


def lost(store: ClientStore, written: Written) -> list[tuple[str, str]]:
    return list(store.lost([("a", written)], store.storage.sizes()))


class Call:
    """An object that pickles as a call: unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_pickle_planted_as_a_state_is_refused_and_not_run(store: ClientStore, tmp_path: Path, how: str) -> None:
    target, planted = tmp_path / "made", tmp_path / "planted"
    torch.save({"a": Call(target)}, planted) if how == "torch" else planted.write_bytes(
        pickle.dumps({"a": Call(target)})
    )
    store.storage.put({"a/000001.pt": planted})
    data = planted.read_bytes()  # whoever can write the state may also write the checkpoint that has its hash
    with pytest.raises(RunError, match=r"a/000001\.pt: is not a state that fedray can read"):
        store.load("a", Written(1, len(data), hash_of(data)))
    assert not target.exists()
    torch.load(planted, weights_only=False) if how == "torch" else pickle.loads(planted.read_bytes())
    assert target.is_dir()  # the planted pickle does work


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        store = ClientStore(disk)
        written = store.save("a", 1, {"version": 1})
        for version in (1, 2):
            with pytest.raises(StorageError, match=f"disk/a/{version:06d}.pt: cannot be written: No space left"):
                store.save("a", version, {"large": np.zeros(500_000)})
        assert store.load("a", written) == {"version": 1} and store.storage.files() == ["a/000001.pt"]


@pytest.mark.parametrize("client", ["a", "client-07", "1272", "user@host.org", "a" * 100])
def test_a_plain_id_is_its_own_folder(client: str) -> None:
    assert folder_name(client) == client


def test_any_other_id_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    clients = [
        "",
        ".",
        "..",
        "../up",
        "/root",
        "a/b",
        "a b",
        "a_b",
        "a\n",
        "a",
        "é",
        "è",
        "日本",
        "-rf",
        ".hidden",
        "a" * 101,
        "a" * 300,
        "a\0",
    ]
    names = {folder_name(client) for client in clients}
    assert len(names) == len(clients)
    for name in names:
        assert name.isascii() and len(name) <= 100 and (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert folder_name("speaker one/two").startswith("speaker_one_two-")


def test_events_are_numbered_and_asked_for_by_number() -> None:
    events = Events()
    assert events.after(0, timeout=0) == []
    for round in range(3):
        events.add("round", {"round": round})
    assert [event.number for event in events.after(0, timeout=0)] == [0, 1, 2]
    assert [event.data for event in events.after(2, timeout=0)] == [{"round": 2}]
    assert events.after(3, timeout=0.01) == []


def test_who_waits_hears_of_news_at_once() -> None:
    events, heard = Events(), []
    thread = threading.Thread(target=lambda: heard.extend(events.after(0, timeout=30)))
    thread.start()
    events.add("end", {})
    thread.join(10)
    assert [event.kind for event in heard] == ["end"]


def test_the_log_is_bounded_and_numbers_go_on() -> None:
    events = Events()
    for number in range(KEPT + 5):
        events.add("progress", {"number": number})
    found = events.after(0, timeout=0)
    assert (len(found), found[0].number, found[-1].number) == (KEPT, 5, KEPT + 4)
    assert all(event.number == event.data["number"] for event in found)
