"""A run's folder tells what has become of it; whoever did not start a driver can find, watch and stop it."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from rich.console import Console

from fedray.engine.cluster import reservation
from fedray.engine.driver import attach, session
from fedray.engine.driver import driver as drivers
from fedray.engine.telemetry.events import Event
from fedray.engine.telemetry.progress import Display
from fedray.runs.folder import RunFolder
from fedray.runs.standing import ATTACH, Standing, standing
from tests.engine import toys, waiting
from tests.engine.waiting import Waiting, appears

SCORES = {"seed": {"round": 0}, "best": {"round": 4}}
PRIVATE = {"privacy/epsilon": 2.0, "privacy/snr": 0.5}
RESULTS = SCORES | {"rounds": 4, "traffic/total_bytes": 0, "clients/failed": 0, "time/total_s": 1.0}


def prepared(root: Path, *rounds: int, **files: Any) -> RunFolder:
    """A run folder with checkpoints of these rounds, good enough for readers that do not open them."""
    folder = RunFolder(root)
    folder.write_text("config.yaml", "name: x\n")
    for round in rounds:
        folder.write_text(f"checkpoints/round_{round:06d}/manifest.json", "{}")
    for name, value in files.items():
        folder.write_text(name.replace("_", "."), value if isinstance(value, str) else json.dumps(value))
    return folder


@pytest.mark.parametrize(("rounds", "files", "expected"), [
    ((0, 4), {"results_json": RESULTS}, Standing("finished", 4, RESULTS)),
    ((0, 3, 4), {}, Standing("stopped", 4)),
    ((0, 5), {"results_json": RESULTS}, Standing("stopped", 5)),  # resumed with more rounds, and stopped
    ((), {}, Standing("stopped", 0)),
    ((0, 2), {"driver_json": {"address": "127.0.0.1:1"}}, Standing("killed", 2)),
    ((0, 4), {"results_json": RESULTS, "driver_json": {}}, Standing("killed", 4)),
    ((0, 1), {"error_txt": "Traceback\n  ...\nRunError: failed\n"}, Standing("failed", 1, error="RunError: failed")),
])  # fmt: skip
def test_what_has_become_of_a_run(
    tmp_path: Path, rounds: tuple[int, ...], files: dict[str, Any], expected: Standing
) -> None:
    assert standing(prepared(tmp_path, *rounds, **files)) == expected


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run folder"):
        standing(RunFolder(tmp_path))
    with pytest.raises(ValueError, match=r"driver.json:1: is not JSON"):
        attach.find(prepared(tmp_path, driver_json="{"))


def test_nobody_is_found_where_no_driver_is(tmp_path: Path) -> None:
    """No driver is found without driver.json, nor with one whose Ray is gone (its port is closed)."""
    assert attach.find(prepared(tmp_path)) is None
    with socket.socket() as once:
        once.bind(("127.0.0.1", 0))
        port = once.getsockname()[1]
    before = time.monotonic()
    assert attach.find(prepared(tmp_path, driver_json={"address": f"127.0.0.1:{port}"})) is None
    assert time.monotonic() - before < 3


def test_a_folder_does_not_lead_to_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that connects to a Ray runs code sent by that Ray, and a run folder may come from anybody."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address in ("203.0.113.7:6379", "example.org:6379", "auto", ""):
        folder = prepared(tmp_path, driver_json={"address": address, "host": "elsewhere"})
        with pytest.raises(
            ValueError, match="its driver was started on elsewhere, .* run this command on that machine, or set RAY_"
        ):
            attach.find(folder)


def test_the_loopback_of_another_machine_is_not_this_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that machines share names an address that each of them has."""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    folder = prepared(tmp_path, driver_json={"address": "127.0.0.1:6379", "host": "elsewhere"})
    with pytest.raises(ValueError, match="started on elsewhere, .*: run this command on that machine$"):
        attach.find(folder)


@pytest.mark.parametrize("whose", ["another user's", "everybody's", "a link"])
def test_an_address_that_another_user_could_have_written_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    monkeypatch.setattr(session, "answers", lambda address: True)
    folder = prepared(tmp_path, driver_json={"address": "127.0.0.1:6379", "host": socket.gethostname()})
    file = tmp_path / "driver.json"
    if whose == "a link":
        file.rename(tmp_path / "other.json")
        file.symlink_to(tmp_path / "other.json")
    elif whose == "everybody's":
        file.chmod(0o666)
    else:
        monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(ValueError, match=rf"{file} is not a file that this user alone can write: set RAY_ADDRESS=127"):
        attach.find(folder)


def row(round: int) -> dict[str, Any]:
    return {
        "round": round,
        "train/loss": 1.0,
        "dev/wer": None,
        "clients/ok": 3,
        "clients/failed": 0,
        "time/round_s": 2.0,
    }


def test_the_past_is_shown_in_short_and_nothing_twice() -> None:
    said = io.StringIO()
    display = Display(Console(file=said, width=200), live=False)
    told: list[tuple[str, dict[str, Any]]] = [
        ("phase", {"text": "starting"}),
        *(("round", {"row": row(round), "rounds": 9}) for round in (6, 7)),
        ("phase", {"text": "/runs/[x] is written"}),
        ("progress", {"done": 1, "of": 1, "what": "over"}),
        ("progress", {"done": 1, "of": 8, "what": "training"}),
        ("progress", {"done": 2, "of": 8, "what": "training"}),
    ]
    display.catch_up(
        [row(round) for round in range(1, 8)], [Event(number, *event) for number, event in enumerate(told)]
    )
    display.show(Event(7, "round", {"row": row(7), "rounds": 9}))
    display.show(Event(8, "round", {"row": row(8), "rounds": 9}))
    display.show(Event(9, "round", {"row": row(9) | {"virtual/hours": 1.25, **PRIVATE}, "rounds": 9}))
    rounds = [f"round {round}/9  train/loss 1.00  1.5 clients/s" for round in range(3, 9)]
    assert said.getvalue().splitlines() == [
        "(2 rounds before)",
        *rounds[:5],
        "/runs/[x] is written",
        "training: 2 of 8",
        rounds[5],
        "round 9/9  train/loss 1.00  1.25 virtual hours  epsilon (Renyi) 2  signal to noise 0.5  1.5 clients/s",
    ]


@pytest.mark.nightly
def test_somebody_else_watches_and_stops(cluster: None, tmp_path: Path) -> None:
    """A detached driver is found by its folder; its messages are shown, and it stops after its round."""
    session.ship(waiting)
    assignment = toys.assignment(tmp_path / "run", algorithm=Waiting, settings=toys.ToySettings(folder=str(tmp_path)))
    assignment = replace(assignment, texts={"config.yaml": "name: toy\n"})
    session.detach(assignment)
    folder = RunFolder(tmp_path / "run")
    found = attach.find(folder)
    assert found is not None
    said = io.StringIO()
    watcher = threading.Thread(target=found.watch, args=(Display(Console(file=said, width=200), live=False),))
    watcher.start()
    with pytest.raises(ValueError, match=r"another run is using this folder: `fedray watch .*run` shows it"):
        drivers.start(assignment)
    appears(tmp_path / "waits")
    found.stop(now=False)
    (tmp_path / "go").touch()
    watcher.join(60)
    assert not watcher.is_alive()
    assert standing(folder) == Standing("stopped", 2) and not folder.exists(ATTACH)
    assert "round 2/4" in said.getvalue() and "round 3" not in said.getvalue()
    ray.kill(
        ray.get_actor(reservation.name_of(str(assignment.folder)), namespace=reservation.NAMESPACE)
    )  # it outlives its run for a while


def test_a_detached_run_that_cannot_begin_says_so_at_once(cluster: None, tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path).locked(),
        pytest.raises(ValueError, match="another run is using this folder: wait for it"),
    ):
        session.detach(toys.assignment(tmp_path))


def test_a_run_is_not_detached_from_a_ray_that_ends_with_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for address in (None, "", "local"):
        monkeypatch.delenv("RAY_ADDRESS", raising=False) if address is None else monkeypatch.setenv(
            "RAY_ADDRESS", address
        )
        with pytest.raises(ValueError, match="set RAY_ADDRESS to a Ray that outlives it"):
            session.connect(lasting=True)


LEFT = """
import pathlib, sys, time
run, status = pathlib.Path(sys.argv[1]), int(sys.argv[2])
print("preparing", flush=True)
if status:
    sys.exit(status)
(run / "driver.json").write_text('{"pid": 2}')
time.sleep(1)
"""


@pytest.mark.parametrize("status", [0, 3])
def test_a_command_is_left_when_its_run_is_under_way(tmp_path: Path, status: int) -> None:
    """The command is not left earlier, although a killed driver's address is there. A command that ends before its run
    is under way gives its status.
    """
    folder = prepared(tmp_path, driver_json={"pid": 1})
    said: list[str] = []
    log = tmp_path / "log.txt"
    log.write_text("of an earlier attempt\n")
    assert attach.leave_running([sys.executable, "-c", LEFT, str(tmp_path), str(status)], folder, log, said.append) == (
        status or None
    )
    assert "".join(said) == "preparing\n" and log.read_text() == "of an earlier attempt\npreparing\n"


def test_a_command_that_is_interrupted_is_ended(tmp_path: Path) -> None:
    def interrupt(words: str) -> None:
        raise KeyboardInterrupt

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        attach.leave_running(
            [sys.executable, "-c", LEFT, str(tmp_path), "0"], prepared(tmp_path), tmp_path / "log.txt", interrupt
        )
    assert time.monotonic() - before < 30
