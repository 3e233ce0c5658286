"""A run in a terminal that is interrupted while it prepares data, or gets SIGTERM: nothing of it is left running."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.terminal import SECONDS, Terminal, gone, read_until, second_round, write


@pytest.mark.nightly
@pytest.mark.parametrize("begun", [True, False])
def test_sigterm_ends_a_run_with_its_last_checkpoint(
    begun: bool, terminal: Terminal, config: dict[str, Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = terminal.start("run", write(tmp_path, config), "--out", run)
    if begun:
        second_round(tmp_path)
    else:
        read_until(process, "starting 1 client actor")
    family = terminal.family(psutil.Process(process.pid))
    process.terminate()  # as a cluster manager does
    rest, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 143 and "SIGTERM received" not in rest, "Ray's handler is not in charge"
    assert f"fedray: stopped after round {int(begun)}; `fedray resume {run}` continues from its checkpoint\n" in rest
    gone(family)


@pytest.mark.nightly
def test_ctrl_c_while_data_are_prepared(terminal: Terminal, config: dict[str, Any], tmp_path: Path) -> None:
    settings = {**config, "data": {"corpus": "endless"}}
    process = terminal.start("run", write(tmp_path, settings), "--out", tmp_path / "run")
    read_until(process, "making: 1 of 11")
    family = terminal.family(psutil.Process(process.pid))
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 130 and "fedray: interrupted" in rest and "Traceback" not in rest
    assert not (tmp_path / "run").exists()
    gone(family)
