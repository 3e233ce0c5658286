"""Output other than a run goes into an empty folder or one that fedray has marked; no user's files are overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray import report
from fedray.cli import main
from fedray.storage.claims import claim
from fedray.storage.local import LocalStorage
from tests.report import folders


def test_a_claim_is_kept_and_recognised(tmp_path: Path) -> None:
    for _ in range(2):
        claim(LocalStorage(tmp_path / "new"), "a report")
    with pytest.raises(ValueError, match="holds a report, not a pre-training: choose another folder"):
        claim(LocalStorage(tmp_path / "new"), "a pre-training")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A user's folder that holds files with the names that fedray writes."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("report.md", "weights.pt", "supervisions_clients.jsonl.gz", "thesis.tex"):
        (folder / name).write_text("mine")
    return folder


def unharmed(folder: Path) -> bool:
    return all(path.read_text() == "mine" for path in folder.iterdir()) and len(list(folder.iterdir())) == 4


def test_nobodys_folder_is_written_into(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [
        ["pretrain", "fedstar/pretraining", "--out", str(mine)],
        ["data", "fednst/embedded", "--lhotse", str(mine)],
        ["data", "fednst/embedded", "--show", str(mine)],
        ["data", "fednst/embedded", "--study", "fedstar/embedded", "--out", str(mine)],
    ]
    for command in commands:
        assert main(command) == 2, command
        assert f"{mine} is not empty, it holds report.md" in capsys.readouterr().err
        assert unharmed(mine)


@pytest.mark.usefixtures("unrendered")
def test_a_report_goes_to_its_runs_to_its_own_folder_and_nowhere_else(mine: Path, tmp_path: Path) -> None:
    folders.write(tmp_path / "runs" / "a")
    found = report.read(tmp_path / "runs" / "a")
    with pytest.raises(ValueError, match=r"mine is not empty, it holds report.md, supervisions.* a report might"):
        found.save(mine)
    assert unharmed(mine)
    for place in (tmp_path / "runs" / "a", tmp_path / "runs", tmp_path / "new", tmp_path / "new"):
        assert found.save(place) == str(place / "report.html")
