"""Client states in versions, and the log of events."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from fedray.engine.events import KEPT, Events
from fedray.engine.store import ClientStore, folder_name


def test_versions_of_a_client(tmp_path: Path) -> None:
    store = ClientStore(tmp_path / "clients")
    for version in (1, 4):
        store.save("speaker/one", version, {"labels": ["yes"], "moments": np.full(3, version, np.float32)})
    assert store.load("speaker/one", 1)["moments"].tolist() == [1, 1, 1]
    assert store.load("speaker/one", 4) == {"labels": ["yes"], "moments": pytest.approx(np.full(3, 4))}
    assert store.path("speaker/one", 4).parent.parent == tmp_path / "clients"
    store.remove("speaker/one", 1)
    store.remove("speaker/one", 1)
    with pytest.raises(FileNotFoundError):
        store.load("speaker/one", 1)


def test_what_no_checkpoint_names_goes(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    for client, versions in {"a": [0, 2, 5], "b": [3], "c": [6], "d": [1, 6]}.items():
        for version in versions:
            store.save(client, version, {"version": version})
    store.keep_only({("a", 0), ("a", 2), ("b", 3), ("d", 1)})
    left = {client: sorted(int(path.stem) for path in (tmp_path / client).glob("[0-9]*.pt")) for client in "abcd"}
    assert left == {"a": [0, 2], "b": [3], "c": [], "d": [1]}
    ClientStore(tmp_path / "none").keep_only(set())


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
