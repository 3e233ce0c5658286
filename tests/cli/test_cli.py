"""The command line in use: another terminal watches and stops a run, and Ctrl-C ends it with all its processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import fedray
from fedray import cli
from fedray.runs.folder import RunFolder
from tests.cli.terminal import (
    ROUNDS,
    SECONDS,
    Terminal,
    command_of,
    gated,
    gone,
    read_until,
    second_round,
    write,
)
from tests.engine.runs import same
from tests.engine.test_attach import prepared


@pytest.fixture(scope="module")
def straight(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, in_process: None) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    (folder / "gate").touch()
    return Path(fedray.run(gated(config, folder), out=folder / "run").folder)


@pytest.mark.nightly
def test_ctrl_c_then_detached_watched_and_stopped(
    terminal: Terminal, config: dict[str, Any], straight: Path, tmp_path: Path
) -> None:
    """A run ended by two Ctrl-C, resumed detached, stopped from elsewhere and resumed again gives the same bits."""
    run = tmp_path / "run"
    process = terminal.start("run", write(tmp_path, config), "--out", run)
    second_round(tmp_path)
    family = terminal.family(psutil.Process(process.pid))
    os.killpg(process.pid, signal.SIGINT)  # all processes of the terminal get it, Ray's included
    assert f"round 1/{ROUNDS}" in read_until(process, "ending after this round; Ctrl-C again ends at once")
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=SECONDS)
    ended = f"fedray: stopped after round 1; `fedray resume {run}` continues from its checkpoint\n"
    assert process.returncode == 130 and rest == f"ending now\n{ended}"
    gone(family)

    status, said = terminal.run("resume", run, "--detach")
    assert status == 0 and f"run folder: {run}" in said and f"fedray watch {run}" in said
    family = terminal.family(command_of(run))
    second_round(tmp_path)
    watch = terminal.start("watch", run)
    assert "round 1  train/loss" in read_until(watch, "continuing after round 1")
    os.killpg(watch.pid, signal.SIGINT)
    rest, _ = watch.communicate(timeout=SECONDS)
    assert watch.returncode == 130 and "stopped watching; the run continues" in rest
    stop = terminal.start("stop", run)
    read_until(stop, "ends after its round, with a checkpoint")
    (tmp_path / "gate").touch()
    rest, _ = stop.communicate(timeout=SECONDS)
    assert stop.returncode == 0 and f"round 2/{ROUNDS}" in rest
    assert rest.endswith(f"Stopped after round 2. Go on with: fedray resume {run}\n")
    gone(family)
    assert "Stopped after round 2" in (run / "log.txt").read_text()
    fedray.resume(run)
    same(run, straight, ROUNDS)


CLUSTER = """
import sys, time
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.mark.nightly
def test_a_run_on_a_cluster_that_lives_on(terminal: Terminal, config: dict[str, Any], tmp_path: Path) -> None:
    """A detached run continues in the cluster; if all of that Ray is killed, whoever watches the run is told."""
    script = tmp_path / "cluster_of_one.py"
    script.write_text(CLUSTER)
    command = [sys.executable, str(script)]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    head = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    family = [psutil.Process(head.pid)]
    try:
        assert head.stdout is not None
        terminal.address = head.stdout.readline().strip()
        run = tmp_path / "run"
        status, said = terminal.run("run", write(tmp_path, config), "--out", run, "--detach")
        assert status == 0 and f"fedray stop {run}" in said
        terminal.address = ""  # on this machine driver.json is enough
        watch = terminal.start("watch", run)
        read_until(watch, f"round 1/{ROUNDS}")
        family = terminal.family(family[0])
        for process in family:
            if process.is_running():
                process.kill()
        since = time.monotonic()
        rest, _ = watch.communicate(timeout=SECONDS)
        assert (
            watch.returncode == 1
            and f"Killed after round 1. Go on with: fedray resume {run}" in rest
            and time.monotonic() - since < 30
        )
        assert cli.main(["stop", str(run)]) == 1
    finally:
        for process in family:
            if process.is_running():
                process.kill()
        head.communicate()


@pytest.mark.long
def test_what_is_said_of_folders_where_nobody_is_at_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], straight: Path
) -> None:
    def said(command: str, folder: RunFolder | Path) -> tuple[int, str]:
        status = cli.main([command, str(folder.place if isinstance(folder, RunFolder) else folder)])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    status, words = said("watch", straight)
    assert status == 0 and f"fedray: {ROUNDS} rounds" in words and re.search(r"test/wer \(%\)", words)
    assert said("stop", straight) == (status, words)
    failed = prepared(tmp_path / "failed", 0, 2, error_txt="Traceback\nRunError: 9 of 9 clients failed\n")
    for command in ("watch", "stop"):
        status, words = said(command, failed)
        assert (
            status == 1
            and words.startswith("Failed after round 2: RunError: 9 of 9 clients failed\n")
            and "fedray resume" in words
        )
    stopped = prepared(tmp_path / "stopped", 0)
    assert said("watch", stopped) == (1, f"Stopped before round 1. Go on with: fedray resume {stopped.place}\n")
    status, words = said("watch", tmp_path)
    assert status == 2 and words == f"fedray: {tmp_path} is not a run folder: it has no config.yaml\n"


def test_wrong_settings_are_told_before_anything_is_left_behind(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    config: dict[str, Any],
    straight: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    path = str(write(tmp_path, config))
    for arguments, words in (
        (["run", path, "rounds=many", "--out", str(tmp_path / "run"), "--detach"], "rounds must be a whole number"),
        (["run", path, "--out", str(straight), "--detach"], "holds a run already"),
        (["resume", str(tmp_path / "run"), "--detach"], "is not a run folder"),
        (["resume", str(straight), "seed=1", "--detach"], "seed cannot be changed on resume"),
    ):
        assert cli.main(arguments) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists() and not (straight / "log.txt").exists()
