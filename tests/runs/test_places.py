"""A new run takes a new or an empty folder, and touches nothing that a user has."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fedray import cli
from fedray.engine.driver import session
from fedray.runs import places
from fedray.runs.folder import RunFolder
from fedray.storage.opening import open_storage
from tests import small_corpus
from tests.engine import toys


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "run") if request.param == "disk" else request.getfixturevalue("bucket")()


@pytest.mark.parametrize(("files", "words"), [
    (["model/mine"], "is not empty, it holds model: choose a new or an empty folder with --out"),
    (["results.json"], "is not empty, it holds results.json: choose"),
    (["d", "b", "a", "c"], "is not empty, it holds a, b and 2 more: choose"),
    (
        ["config.yaml", "checkpoints/x"],
        "holds a run already: continue with `fedray resume .*`, or choose another folder "
        "with --out",
    ),
    (
        ["run.json", "checkpoints/x"],
        "it holds checkpoints: put back the config.yaml of the run that lies "
        "there to continue with",
    ),
])  # fmt: skip
def test_a_folder_with_anything_in_it_is_refused(place: str, files: list[str], words: str) -> None:
    for name in files:
        open_storage(place).write(name, b"mine")
    with pytest.raises(ValueError, match=words) as caught:
        places.new_place("toy", place)
    assert RunFolder(place).place in str(caught.value)
    assert open_storage(place).files() == sorted(files) and all(
        open_storage(place).read(name) == b"mine" for name in files
    )


def test_what_is_new_or_empty_is_taken(place: str, tmp_path: Path) -> None:
    assert places.new_place("toy", place) == (place if "://" in place else Path(place))
    assert not open_storage(place).files()
    (tmp_path / "empty").mkdir()
    assert places.new_place("toy", tmp_path / "empty") == tmp_path / "empty"
    for name in ("log.txt", "broken.tsv", "run.json"):  # left by runs that did not begin
        (tmp_path / "empty" / name).touch()
    assert places.new_place("toy", tmp_path / "empty") == tmp_path / "empty"


def test_what_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "tiny.yaml"
    (tmp_path / "corpus").mkdir()
    small_corpus.write(
        tmp_path / "corpus", train=[("a-0", "a", "ab")], dev=[("b-0", "b", "ab")], test=[("c-0", "c", "ab")]
    )
    config.write_text(yaml.safe_dump(small_corpus.config(tmp_path / "corpus", "train", "dev", "test")))
    file = tmp_path / "README.md"
    file.write_text("mine")
    before = sorted(os.listdir(tmp_path))
    for out, words in (
        ("", "the name of the run folder is empty"),
        ("README.md", f"{file} is a file, not a folder: choose another folder with --out"),
        ("README.md/run", f"{file} is a file, not a folder"),
        (".", f"{tmp_path} is not empty, it holds README.md, corpus and 1 more"),
    ):
        for detached in ([], ["--detach"]):
            assert cli.main(["run", str(config), "--out", out, *detached]) == 2
            assert words in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == before and file.read_text() == "mine"


@pytest.mark.nightly
def test_what_came_meanwhile_is_seen_under_the_lock(cluster: None, tmp_path: Path) -> None:
    """Files that appear between the first check and the lock are found; those that fedray leaves do not count."""
    assignment = replace(toys.assignment(tmp_path / "run", rounds=1), new=True)
    mine = {"error.txt": "mine", "driver.json": "mine", "results.json": "mine"}
    for name, text in mine.items():
        (tmp_path / "run" / name).write_text(text)
    with pytest.raises(ValueError, match=r"is not empty, it holds driver\.json, error\.txt and 1 more"):
        session.run(assignment)
    assert {path.name: path.read_text() for path in (tmp_path / "run").iterdir() if path.name != ".lock"} == mine
    for name in mine:
        (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / "broken.tsv").touch()
    assert session.run(assignment)["rounds"] == 1


def test_two_runs_of_one_name_in_one_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRAY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(places.time, "strftime", lambda form: "20260101-000000")
    found = [places.new_place("toy", None) for _ in range(3)]
    assert [path.name for path in map(Path, found)] == [f"toy-20260101-000000{end}" for end in ("", "-2", "-3")]
    with pytest.raises(ZeroDivisionError), places.unless_begun(found[0]):
        1 / 0  # noqa: B018
    assert sorted(os.listdir(tmp_path / "runs")) == [Path(path).name for path in found[1:]]
    monkeypatch.setenv("FEDRAY_RUNS", str(tmp_path / "file"))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is a file, not a folder"):
        places.new_place("toy", None)
