"""`fedray runs` tells which runs of a folder are running, and how the others ended."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from fedray.cli import main
from fedray.runs.folder import RunFolder
from fedray.storage.base import below
from tests.stores import s3


def folder(root: Path, name: str, rounds: int, **files: object) -> Path:
    """A run folder with a checkpoint after `rounds` rounds; `files`: their content, `driver_json` as driver.json."""
    run = root / name
    (run / "checkpoints" / f"round_{rounds:06d}").mkdir(parents=True)
    (run / "config.yaml").write_text("extends: fedprox/folders\nrounds: 9\n")
    (run / "run.json").write_text("{}")
    for file, content in files.items():
        (run / file.replace("_", ".")).write_text(content if isinstance(content, str) else json.dumps(content))
    return run


def test_runs_of_a_bucket_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with s3() as new:
        place = new()
        for name, rounds in (("a", 3), ("study/b", 9)):
            run = RunFolder(below(place, name))
            for file, text in {"config.yaml": "rounds: 9\n", "run.json": "{}"}.items():
                run.write_text(file, text)
            run.write_text(f"checkpoints/round_{rounds:06d}/manifest.json", "{}")
        assert main(["runs", place]) == 0
        assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
            ["a", "stopped", "3", "of", "9"], ["study/b", "stopped", "9", "of", "9"],
        ]  # fmt: skip
        assert main(["runs", below(place, "none")]) == 2
        assert "holds no runs" in capsys.readouterr().err


def test_runs_are_listed_with_their_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDRAY_RUNS", str(tmp_path))
    assert main(["runs"]) == 2 and "holds no runs: name a folder that does" in capsys.readouterr().err
    here, gone = {"host": socket.gethostname(), "pid": os.getpid()}, 2**22  # above the largest pid
    folder(tmp_path, "a", 3, driver_json=here)
    folder(tmp_path, "study/b", 4, driver_json=here | {"pid": gone})
    folder(tmp_path, "study/c", 5, driver_json=here | {"host": "elsewhere"})
    folder(tmp_path, "d", 6, error_txt="Traceback\nValueError: too loud")
    newest = folder(tmp_path, "e", 7, metrics_jsonl="{}")
    os.utime(newest / "metrics.jsonl", (time.time() + 3600,) * 2)
    folder(tmp_path, "broken", 1, driver_json="[")
    (tmp_path / "notes").mkdir()
    assert main(["runs"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    found = {cells[0]: " ".join(cells[1:-2]) for cells in lines}
    assert found.pop("broken").startswith(f"{tmp_path}/broken/driver.json:1: is not JSON")
    assert found == {
        "a": "running 3 of 9",
        "study/b": "killed 4 of 9",
        "study/c": "on elsewhere 5 of 9",
        "d": "failed 6 of 9",
        "e": "stopped 7 of 9",
    }
    assert lines[-1][0] == "e", "the newest last"
    assert main(["runs", str(tmp_path / "study")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(tmp_path / "study")


@pytest.mark.parametrize("name", ["error.txt", "driver.json", "results.json", "metrics.jsonl"])
@pytest.mark.parametrize("command", ["watch", "stop"])
def test_a_link_out_of_the_folder_is_not_followed(
    command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret.txt").write_text("hunter2\n")
    run = folder(tmp_path, "run", 3)
    (run / name).symlink_to(tmp_path / "secret.txt")
    assert main([command, str(run)]) == 2
    said = capsys.readouterr()
    assert f"{name}: is a link that leads out of the run folder" in said.err and "hunter2" not in said.err + said.out


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_what_is_no_port_is_refused(port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(folder(tmp_path, "run", 3)), "--web", f"--port={port}"])
    assert ended.value.code == 2 and f"'{port}' is no port: choose a number from 0 to 65535" in capsys.readouterr().err
