"""`fedray devices` rehearses populations without training, draws pictures and converts traces to tables."""

from __future__ import annotations

import json
import pickle
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from fedray import cli, experiment
from fedray.cli import devices
from fedray.experiment.rehearsal import Rehearsal, rehearse
from tests import small_corpus
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("without_ray")
FAST = {"seconds": 0.5, "down": 8e6, "up": 4e6, "latency": 0.25, "watts": 4.0, "radio": 1.0}
SLOW = FAST | {"seconds": 2.0, "down": 4e6, "up": 1e6, "watts": 2.0}
CLASSES = {"kind": "classes", "by": "text", "classes": {"fast": FAST, "slow": SLOW}}
UTTERANCES = {"ann": 3, "bob": 1, "cid": 2}
TEXTS = {"ann": "fast", "bob": "slow", "cid": "slow"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clients = [(f"{name}{number}", name, TEXTS[name]) for name, count in UTTERANCES.items() for number in range(count)]
    monkeypatch.chdir(tmp_path)
    return small_corpus.write(tmp_path, server=[("s0", "sue", "one")], clients=clients)


def write(folder: Path, **sections: Any) -> str:
    values = small_corpus.config(folder, "server", "clients", devices=CLASSES, cohort={"size": 3}, rounds={})
    values |= {"rounds": 2} | sections
    (folder / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    return str(folder / "config.yaml")


def rehearsed(path: str, *overrides: str) -> Rehearsal:
    config, source = experiment.load(path, overrides)
    return rehearse(experiment.check(config, source), source)


def seconds(found: Rehearsal, client: str, device: dict[str, float], passes: int = 1) -> float:
    """Compute the seconds of a trip by hand."""
    moved = 8 * found.work.down / device["down"] + 8 * found.work.up / device["up"]
    return device["latency"] + moved + passes * UTTERANCES[client] * device["seconds"]


def test_a_rehearsal_by_hand(folder: Path) -> None:
    found = rehearsed(write(folder))
    assert found.clock.ids == ["ann", "bob", "cid"] and found.work.down - 8 == found.work.up > 0  # 8: a setting
    by_hand = [seconds(found, name, FAST if name == "ann" else SLOW) for name in UTTERANCES]
    assert found.trips == pytest.approx(by_hand)
    # A round waits for all clients.
    assert len(found.steps) == 2 and found.steps[1].ended - found.steps[0].ended == round(1e6 * max(by_hand))
    assert all(len(step.arrived) == 3 for step in found.steps) and (found.available == 1).all()
    twice = rehearsed(write(folder), "algorithm.client.epochs=2")
    assert twice.trips[0] == pytest.approx(seconds(found, "ann", FAST, passes=2))


def test_bytes_are_those_of_the_codes(folder: Path) -> None:
    whole, half = rehearsed(write(folder)), rehearsed(write(folder), "upload=half", "download=int8")
    assert whole.work.up == 2 * half.work.up and whole.work.down > 3 * half.work.down


def test_nights(folder: Path) -> None:
    nightly = {"kind": "nightly", "start": 22.5, "spread": 0, "hours": 4, "hours_spread": 0}
    found = rehearsed(write(folder, devices=CLASSES | {"availability": nightly}))
    assert np.flatnonzero(found.available[:, 0]).tolist() == [0, 1, 2, 23]


@pytest.mark.parametrize(
    "clock", [{"kind": "rounds", "over": 2.0, "deadline": 3.0}, {"kind": "buffered", "concurrency": 2, "buffer": 1}]
)
def test_tables_and_pictures(clock: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(folder, clock=clock, cohort={"size": 1}, rounds=4)
    assert cli.main(["devices", path, "--out", str(folder / "phones")]) == 0
    said = capsys.readouterr().out
    titles = ("Devices", "Rounds, without training", "Who takes part", "Jain's index", "The median client has ")
    assert all(title in said for title in titles)
    names = {file.name for file in (folder / "phones").iterdir()}
    assert names == {".fedray", "devices.png", "devices.svg"}
    assert (folder / "phones" / "devices.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["devices", path, "--out", str(folder)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_classes_and_what_they_do(folder: Path) -> None:
    found = rehearsed(write(folder, cohort={"size": 1}, clock={"kind": "rounds", "over": 3.0}, rounds=5))
    table = devices.class_table(found)
    assert [list(column.cells) for column in table.columns][:2] == [["fast", "slow"], ["1", "2"]]
    assert list(table.columns[-1].cells) == ["100%", "100%"]
    # The fastest of the three clients is first in every round; the trips of the others are in vain.
    first = int(np.argmin([seconds(found, name, FAST if name == "ann" else SLOW) for name in UTTERANCES]))
    assert {trip.client for step in found.steps for trip in step.arrived} == {first}
    assert "Jain's index of the clients' arrivals: 0.33" in str(devices.part_table(found).caption)


def converted(*arguments: str) -> int:
    return cli.main(["devices", "--convert", *arguments])


def test_two_files_of_fedscale_become_devices_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speeds = {n: {"computation": 100.0 * (n + 1), "communication": 8000.0} for n in range(5)}
    times = {n: {"active": [0], "inactive": [43200], "finish_time": 86400 * (n + 1), "model": ""} for n in range(2)}
    (folder / "speeds").write_bytes(pickle.dumps(speeds))
    (folder / "times").write_bytes(pickle.dumps(times))
    for files in (("times", "speeds"), ("speeds", "times")):
        out = f"{files[0]}.parquet"
        assert converted("fedscale", *files, "--watts", "3", "--scale", "0.5", "--out", out) == 0
        said = capsys.readouterr().out.splitlines()
        windows = f"{files[0]}-windows.parquet"
        assert said[1:3] == [f"{out}: 5 devices", f"{windows}: 8 windows of 5 devices"]
        overrides = said[3].removeprefix("Use it with: ")
        assert pq.read_table(out)["seconds"].to_pylist() == pytest.approx([0.5 * 3 * 0.1 * (n + 1) for n in range(5)])
    found = rehearsed(write(folder, devices={"kind": "table", "file": "x"}), *shlex.split(overrides))
    drawn = sorted(found.rates()["seconds"])
    assert all(min(abs(seconds - 0.15 * (n + 1)) for n in range(5)) < 1e-9 for seconds in drawn)
    assert found.available[5].min() > 0 and found.available[13].max() == 0


def test_flash_gives_windows_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ijson", reason="FLASH's traces are read by ijson, which is not installed")
    states = ("battery_charged_on", "wifi", "screen_lock", "screen_unlock")
    messages = "".join(f"2020-01-28 0{hour}:00:00\t{state}\n" for hour, state in enumerate(states))
    (folder / "trace.json").write_text(json.dumps({"ann": {"messages": messages}}))
    assert converted("flash", "trace.json", "--out", "nights.parquet") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "nights.parquet: 1 windows of 1 devices"
    assert said[1] == ("Use it with: 'devices.availability={kind: table, file: nights.parquet, period_s: 86400}'")


def test_two_files_that_say_the_same_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.csv", "b.csv"):
        (folder / name).write_text("device,seconds,down_bit_s,up_bit_s\nann,1,2,3\n")
    assert converted("table", "a.csv", "b.csv", "--out", "phones.parquet") == 2
    assert "a.csv and b.csv both say what devices can do: convert one at a time" in capsys.readouterr().err
    assert not (folder / "phones.parquet").exists()
