"""~ in arguments of the command line, in options, and in the places of runs and caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray.cli.parsing import at_home
from fedray.config import shipped
from fedray.runs import places
from fedray.storage.cache import cache_root
from fedray.storage.local import on_disk
from tests.trees import read, tone, write


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("given", "meant"), [
    ("--show=~/page", "--show=HOME/page"),
    ("~/run", "HOME/run"),
    ("data.root=~/cv", "data.root=HOME/cv"),
    ("data.root=~", "data.root=~"),  # null in YAML
    ("--show=page", "--show=page"),
    ("name=a~/b", "name=a~/b"),
    ("~nobody-here/x", "~nobody-here/x"),
])  # fmt: skip
def test_arguments(given: str, meant: str, home: Path) -> None:
    assert at_home(given) == meant.replace("HOME", str(home))


def test_places(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_disk("~/page") == home / "page" and places.place("~/run") == home / "run"
    monkeypatch.setenv("FEDRAY_CACHE", "~/cache")
    monkeypatch.setenv("FEDRAY_RUNS", "~/runs")
    assert cache_root() == home / "cache" and places.usual_place("x") == home / "runs" / "x"
    write(home / "mine.yaml", "name: mine\n")
    assert shipped.locate("configs", "~/mine.yaml") == home / "mine.yaml"


def test_options_of_readers(home: Path, tmp_path: Path) -> None:
    tone(home / "audio" / "a.wav")
    write(home / "lists" / "all.tsv", "path\tspeaker\na.wav\tann\n")
    (tmp_path / "root").mkdir()
    splits = read("tsv", tmp_path / "root", train=["~/lists/all.tsv"], audio_root="~/audio", seconds_column=None)
    assert splits["train"].column("path") == [str(home / "audio" / "a.wav")]
