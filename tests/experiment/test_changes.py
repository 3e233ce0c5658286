"""A run resumed in a changed environment: each difference is named, and the run continues only if it is accepted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedray
from fedray import cli, report
from fedray.core import environment
from fedray.experiment.description import carried_on, differences
from fedray.runs.folder import RunFolder
from tests import speech
from tests.engine.runs import bits, cut_short, rows

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.long]


@pytest.fixture(scope="module")
def straight(corpus: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> Path:
    settings = speech.settings(corpus, rounds=2)
    settings["algorithm"] |= {"schedule": {"kind": "cosine", "floor": 0.1}}
    folder = fedray.run(settings, out=tmp_path_factory.mktemp("straight") / "run").folder
    assert isinstance(folder, Path)
    return folder


@pytest.fixture
def cut(straight: Path, tmp_path: Path) -> Path:
    """The run folder as a kill after the first round leaves it."""
    folder = shutil.copytree(straight, tmp_path / "cut")
    cut_short(folder, 2)
    return folder


def edit(folder: Path, **changes: Any) -> None:
    """Write the values of another machine or of other packages into run.json."""
    described = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(described | changes))


def run_json(**more: Any) -> dict[str, Any]:
    """The least that run.json holds."""
    return {"data": "x", "data_copied": "x", "texts": [], "imports": {}, "files": {}, "settings": {}, **more}


def test_what_is_written_down(straight: Path) -> None:
    described = json.loads((straight / "run.json").read_text())
    assert {"torch", "torchaudio", "numpy", "speechbrain", "python", "processor", "device"} <= set(described)
    assert described["processor"] == environment.processor() and described["device"] == "CPU"
    kept = described["settings"]
    assert kept["algorithm.alpha"] == 0.5 and kept["rounds"] == 2, "a cosine depends on the number of rounds"
    assert not {"engine.actors", "data.root", "name"} & set(kept) and "engine.lanes" in kept


def test_a_run_in_the_same_world_goes_on_with_the_same_bits(straight: Path, cut: Path) -> None:
    fedray.resume(cut, ["engine.actors=1"])
    assert rows(cut) == rows(straight) and bits(cut, 2) == bits(straight, 2)
    assert "changes" not in json.loads((cut / "run.json").read_text())


@pytest.mark.parametrize(("changes", "said"), [
    ({"numpy": "1.0"}, "numpy: 1.0 -> "),
    ({"torchaudio": "2.10.0"}, "torchaudio: 2.10.0 -> "),
    ({"processor": "6502, 8 bits"}, "processor: 6502, 8 bits -> "),
    ({"device": "GPU H100"}, "device: GPU H100 -> CPU"),
    ({"algorithm": "abc"}, "the file of the algorithm has changed"),
    ({"code": "abc"}, "fedray's code has changed"),
    ({"nemo": "1.0"}, "nemo: 1.0 -> not installed"),
])  # fmt: skip
def test_another_world_is_refused(cut: Path, changes: dict[str, str], said: str) -> None:
    edit(cut, **changes)
    with pytest.raises(ValueError, match=r"(?s)changed since round 1:.*--accept-changes") as caught:
        fedray.resume(cut)
    assert f"\n  {said}" in str(caught.value)


def test_a_changed_module_is_named() -> None:
    before, now = (run_json(imports={"mine": "1", "other": seen}) for seen in ("1", "2"))
    assert differences(before, now) == ["the module other of `imports` has changed"]


def test_a_corpus_that_moved_can_be_accepted(straight: Path, cut: Path, corpus: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved, copy_function=shutil.copyfile)  # changes the modification times
    with pytest.raises(ValueError, match=r"(?s)the corpus: its files are in another folder or .*--accept-changes"):
        fedray.resume(cut, [f"data.root={moved}"])
    fedray.resume(cut, [f"data.root={moved}"], accept_changes=True)
    assert rows(cut) == rows(straight) and bits(cut, 2) == bits(straight, 2)


def test_other_sound_is_refused(cut: Path, corpus: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved)
    first = next(moved.rglob("*.wav"))
    first.write_bytes(first.read_bytes() + b"\0\0")
    with pytest.raises(ValueError, match="the data differ .*cannot be resumed"):
        fedray.resume(cut, [f"data.root={moved}"], accept_changes=True)


def test_an_edited_configuration_is_refused_on_the_command_line(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = yaml.safe_load((cut / "config.yaml").read_text())
    config["algorithm"]["alpha"] = 0.25
    (cut / "config.yaml").write_text(yaml.safe_dump(config))
    assert cli.main(["resume", str(cut)]) == 2
    assert "\n  algorithm.alpha in config.yaml: 0.5 -> 0.25\n" in capsys.readouterr().err


def test_more_rounds_under_a_schedule_are_refused(cut: Path) -> None:
    with pytest.raises(ValueError, match=r"(?s)rounds in .*: 2 -> 3.*the schedule of the learning rate follows"):
        fedray.resume(cut, ["rounds=3"])


@pytest.mark.nightly
def test_what_is_accepted_is_told_by_the_report(cut: Path, straight: Path) -> None:
    edit(cut, numpy="1.0")
    assert cli.main(["resume", str(cut), "--accept-changes"]) == 0
    described = json.loads((cut / "run.json").read_text())
    (change,) = described["changes"]
    assert change["after_round"] == 1 and change["differences"][0].startswith("numpy: 1.0 -> ")
    assert described["numpy"] == json.loads((straight / "run.json").read_text())["numpy"], "what it continues with"
    told = report.read(cut)
    assert "was resumed after round 1 although its bits depend on changes: numpy: 1.0" in told.html()
    assert "settings" not in told.html().partition("Versions of")[2]


def test_a_folder_of_an_older_version_is_compared_by_what_it_says() -> None:
    now = run_json(torch="2.11.0", numpy="2.0")
    assert differences(run_json(torch="2.11.0", ray="2.50"), now) == []
    assert differences(run_json(torch="2.10.0"), now) == ["torch: 2.10.0 -> 2.11.0"]


@pytest.mark.parametrize(("texts", "was"), [
    (["fedray's rules 3 for uz"], "normalised by fedray's rules 3 for uz"),
    ([], "as the corpus has them"),
])  # fmt: skip
def test_texts_by_other_rules_are_other_data(tmp_path: Path, texts: list[str], was: str) -> None:
    (tmp_path / "run.json").write_text(json.dumps(run_json(texts=texts)))
    now = run_json(data="y", data_copied="y", texts=["fedray's rules 2 for uz"])
    with pytest.raises(ValueError, match=f"texts were {was}, and now normalised by fedray's rules 2 for uz, so"):
        carried_on(RunFolder(tmp_path), now, None, accept=True)


@pytest.mark.parametrize("name", ["privacy.noise", "cohort.size", "strategy.kind", "seed", "rounds"])
def test_what_the_account_is_for_stays_in_a_private_run(tmp_path: Path, name: str) -> None:
    before = run_json(settings={"privacy.kind": "gaussian", "engine.lanes": 2, name: 1})
    (tmp_path / "run.json").write_text(json.dumps(before))
    (tmp_path / "checkpoints" / "round_000003").mkdir(parents=True)
    folder = RunFolder(tmp_path)
    now = {**before, "settings": {**before["settings"], name: 2}}
    with pytest.raises(
        ValueError, match=rf"the guarantee of its 3 rounds would be void:\n  {name} in config.yaml: 1 -> 2"
    ):
        carried_on(folder, now, None, accept=True)
    lanes = {**before, "settings": {**before["settings"], "engine.lanes": 3}}
    assert carried_on(folder, lanes, None, accept=True)["changes"][0]["after_round"] == 3
