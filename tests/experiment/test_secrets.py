"""What the environment gives a configuration is in no file of the run, nor in what a tracker gets."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray import cli, report
from fedray.engine.telemetry.trackers import Nothing
from fedray.experiment import launch
from tests import speech

SECRET = "hunter2-is-the-secret"


@pytest.mark.long
@pytest.mark.usefixtures("in_process", "unrendered")
def test_no_file_holds_it_and_a_resumed_run_finds_it_again(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cards: list[Mapping[str, Any]] = []
    assign = launch.assign

    def assigned(*arguments: Any, **options: Any) -> Any:
        made = assign(*arguments, **options)
        cards.append(made.card.params)
        return made

    monkeypatch.setattr(launch, "assign", assigned)
    monkeypatch.setenv("PLACE", str(shutil.copytree(corpus, tmp_path / SECRET)))
    settings = speech.settings(corpus, rounds=1)
    settings["data"]["root"] = "${oc.env:PLACE}"
    folder = fedray.run(settings, out=tmp_path / "run").folder
    assert isinstance(folder, Path)
    assert isinstance(launch.load(folder / "config.yaml")[0].tracker, Nothing)
    fedray.resume(folder, ["rounds=2"])
    page = Path(report.write(folder)).read_text()
    said = capfd.readouterr()
    assert len(cards) == 2 and all(card["data.root"] == "${oc.env:PLACE}" for card in cards)
    assert "${oc.env:PLACE}" in (folder / "config.yaml").read_text() and "${oc.env:PLACE}" in page
    assert SECRET not in f"{said.out}{said.err}{cards}"
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 10 and not [path for path in written if SECRET.encode() in path.read_bytes()]
    monkeypatch.delenv("PLACE")
    assert cli.main(["resume", str(folder), "rounds=3"]) == 2
    assert "PLACE" in capfd.readouterr().err
