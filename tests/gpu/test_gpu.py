"""The GPU check's program on the processor, with everything tiny: each check, the page, and the program without Ray."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedray.engine.actors import gpu_trials
from tests.gpu import record
from tests.gpu.checks import CHECKS
from tests.gpu.page import Book
from tests.gpu.record import Missed, Row, Where

ROOT = Path(__file__).parent.parent.parent
# What a machine with torch and the wheels of `tests.gpu.wheels` may lack.
ABSENT = (
    "ray",
    "mlflow",
    "matplotlib",
    "tensorboardX",
    "shtab",
    "wandb",
    "optuna",
    "librosa",
    "espeakng_loader",
)


def without(folder: Path) -> dict[str, str]:
    """Environment variables with which neither a process nor its children can import the packages in ABSENT."""
    folder.mkdir(exist_ok=True)
    for name in ABSENT:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is not on a machine that checks its GPU')\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "OMP_NUM_THREADS": "1"}


LONG = ("algorithms", "lanes", "models", "speed")


# Without `sharing`, which starts processes: `test_the_program_without_ray` runs it.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in CHECKS if name != "sharing"],
)
def test_a_check_on_the_processor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDRAY_SPEECH", raising=False)
    rows: list[Row] = []
    monkeypatch.setattr(Row, "emit", lambda row: rows.append(row))
    check = importlib.import_module(f"tests.gpu.checks.{name}")
    assert check.TITLE and check.ABOUT and check.SECONDS
    record.play(check, Where("cpu", tiny=True), time.time() + 600)
    assert rows and not [f"{row.name}: {row.failed}\n{row.trace}" for row in rows if row.failed]


def test_an_error_fails_its_row_alone_and_the_rest_may_be_left_out(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Broken:
        TITLE, ABOUT, OPENS_DEVICE, SECONDS = "Broken", "One row of each kind.", True, 1.0

        def items(self, where: Where) -> Iterator[record.Item]:
            yield "fine", lambda: {"number": 1234.5678, "nan": float("nan")}
            yield "raises", lambda: {"number": 1 // 0}
            yield "misses", self.miss
            raise OSError("the rest cannot be made")

        def miss(self) -> record.Values:
            raise Missed("too large", {"number": 7})

    record.play(Broken(), Where("cpu"), time.time() + 60)
    record.play(Broken(), Where("cpu"), time.time() - 1)
    found = [row for line in capfd.readouterr().out.split("\n") if (row := Row.parse(line)) is not None]
    assert [row.name for row in found] == ["fine", "raises", "misses", "preparation"] * 2
    assert [bool(row.failed) for row in found] == [False, True, True, True] + [False, False, False, True]
    book = Book(tmp_path, {"python": "3"}, "python -m tests.gpu")
    book.begin("broken", "Broken", "One row of each kind.")
    for row in found:
        book.add("broken", row)
    page = (tmp_path / "gpu.md").read_text()
    assert "8 rows, 4 failed" in page and "1,235" in page and "ZeroDivisionError" in page and "too large" in page
    assert len(json.loads((tmp_path / "gpu.json").read_text())["checks"]["broken"]["rows"]) == 8


@pytest.mark.long
def test_ray_is_not_needed_to_play_rounds(tmp_path: Path) -> None:
    code = (
        "from tests.gpu.checks import algorithms; from tests.gpu.record import Where; import sys\n"
        "cases = dict(algorithms.items(Where('cpu', tiny=True)))\n"
        "print(cases['scaffold crnn']()); assert 'ray' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=without(tmp_path / "absent"), capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    assert "'same bits': 'yes'" in done.stdout


@pytest.mark.nightly
def test_the_program_without_ray(tmp_path: Path) -> None:
    """All checks run without Ray, each in its own process, including `sharing` and, if there is some, real speech."""
    command = [sys.executable, "-m", "tests.gpu", "--device", "cpu", "--tiny", "--minutes", "20", "--out", "page"]
    environment = without(tmp_path / "absent") | {"PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    page = (tmp_path / "page" / "gpu.md").read_text()
    assert not done.returncode, page
    checks = json.loads((tmp_path / "page" / "gpu.json").read_text())["checks"]
    assert list(checks) == list(CHECKS) and all(check["rows"] for check in checks.values())
    assert all(f"## {importlib.import_module(f'tests.gpu.checks.{name}').TITLE}" in page for name in CHECKS)


@pytest.mark.parametrize("wrong", [0.0, 2.0, float("nan")])
def test_a_wrong_result_of_a_device_is_told(wrong: float) -> None:
    with pytest.raises(RuntimeError, match="differs from the processor's by (100|nan) %"):
        gpu_trials.check_same(torch.full((3,), wrong), torch.ones(3))
