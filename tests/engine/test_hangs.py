"""Processes that really are stopped (SIGSTOP): who hangs is named, `fedray stop` still ends the run, and the run can
be resumed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError

from fedray import cli
from fedray.core.types import Change, Client, Received, RunError, ServerState
from fedray.engine.cluster import reservation
from fedray.engine.driver import attach, session
from fedray.engine.driver.driver import Assignment
from fedray.runs.folder import RunFolder
from fedray.runs.standing import Standing, standing
from tests.engine import toys
from tests.engine.runs import same
from tests.engine.test_attach import appears

SECONDS = 90  # for anything that a run does, on a busy machine


class Stopping(toys.Toy):
    """In the second round a troubled client stops its process once (`stop`) or waits for the file `go` (`wait`), or
    the server waits for that file (`server`).
    """

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        if self.settings.trouble == "server" and round == 1:
            (Path(self.settings.folder) / "serving").touch()
            appears(Path(self.settings.folder) / "go")
        return super().server_update(state, change, round)

    def make_trouble(self, client: Client, received: Received) -> None:
        told = Path(self.settings.folder) / "pid"
        if received.round == 1 and not told.exists():
            told.with_name("pid.tmp").write_text(f"{os.getpid()}")
            told.with_name("pid.tmp").rename(told)
            if self.settings.trouble == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif self.settings.trouble == "wait":
                appears(Path(self.settings.folder) / "go")


@pytest.fixture(scope="module", autouse=True)
def shipped(cluster: None) -> None:
    session.ship(sys.modules[__name__])


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, shipped: None) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    toys.play(folder, rounds=2, cohort=12)
    return folder


def given(folder: Path, trouble: str) -> Assignment:
    settings = toys.ToySettings(trouble=trouble, troubled=("client-05",), folder=str(folder))
    made = toys.assignment(
        folder / "run", rounds=2, actors=2, cohort=12, algorithm=Stopping, settings=settings, hang_warning_s=0.5
    )
    return replace(made, texts={"config.yaml": "name: toy\n"})


@contextmanager
def detached(assignment: Assignment) -> Iterator[attach.Attached]:
    """Start a detached run. On exit, kill its driver and the troubled client's process, whatever became of them."""
    session.detach(assignment)
    found = attach.find(RunFolder(assignment.folder))
    assert found is not None
    try:
        yield found
    finally:
        with suppress(ValueError):  # the run has ended
            ray.kill(ray.get_actor(reservation.name_of(str(assignment.folder)), namespace=reservation.NAMESPACE))
        told = Path(assignment.folder).parent / "pid"
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int(told.read_text()), signal.SIGKILL)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def warnings(found: attach.Attached) -> list[str]:
    return [event.data["text"] for event in ray.get(found._driver.events.remote(0, 0.0)) if event.kind == "warning"]


def goes_on(folder: Path, straight: Path) -> None:
    session.run(given(folder, "stop"))
    same(folder / "run", straight, 2)


@pytest.mark.nightly
def test_a_client_that_hangs_is_named_and_the_run_can_be_stopped(
    straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with detached(given(tmp_path, "stop")) as found:
        until(lambda: bool(warnings(found)))
        pid, (said,) = (tmp_path / "pid").read_text(), warnings(found)
        assert "seems to hang at lane " in said and f", client client-05: process {pid} on node " in said
        assert "has been silent for " in said and said.endswith(f"; `fedray stop {tmp_path}/run` ends the run")
        assert cli.main(["stop", str(tmp_path / "run")]) == 0
        shown = capsys.readouterr()
        assert "the run ends now, since a client actor hangs: the round is lost, the last checkpoint stays" in shown.err
        assert shown.out == f"Stopped after round 1. Go on with: fedray resume {tmp_path}/run\n"
        until(lambda: not Path(f"/proc/{pid}").exists())
    goes_on(tmp_path, straight)


@pytest.mark.nightly
def test_at_once_is_at_once_before_anybody_is_known_to_hang(straight: Path, tmp_path: Path) -> None:
    assignment = given(tmp_path, "stop")
    patient = replace(assignment.plan, engine=replace(assignment.plan.engine, hang_warning_s=600.0))
    with detached(replace(assignment, plan=patient)) as found:
        appears(tmp_path / "pid")
        assert warnings(found) == []
        assert cli.main(["stop", str(tmp_path / "run"), "--now"]) == 0
        assert standing(RunFolder(tmp_path / "run")) == Standing("stopped", 1)
        until(lambda: not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists())  # Ray ends it after its driver
    goes_on(tmp_path, straight)


@pytest.mark.nightly
def test_a_driver_that_does_not_answer_is_killed(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attach, "ANSWER_SECONDS", 1.0)
    run = tmp_path / "run"
    with detached(given(tmp_path, "wait")):
        appears(tmp_path / "pid")
        driver = json.loads((run / "driver.json").read_text())["pid"]
        os.kill(driver, signal.SIGSTOP)
        try:
            assert cli.main(["stop", str(run)]) == 1
            words = f"the driver of {run} has not answered in 1 s: try again, or kill it with --now"
            assert words in capsys.readouterr().err
            assert cli.main(["stop", str(run), "--now"]) == 0
        finally:
            with suppress(ProcessLookupError):
                os.kill(driver, signal.SIGKILL)
        shown = capsys.readouterr()
        assert f"the driver of {run} had not answered in 1 s and was killed; the last checkpoint stays" in shown.err
        assert f"Killed after round 1. Go on with: fedray resume {run}\n" in shown.out
    goes_on(tmp_path, straight)


@pytest.mark.nightly
def test_a_driver_that_answers_and_does_not_end_is_killed(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver cannot interrupt the server's own work."""
    monkeypatch.setattr(attach, "NOW_SECONDS", 2.0)
    run = tmp_path / "run"
    with detached(given(tmp_path, "server")):
        appears(tmp_path / "serving")
        assert cli.main(["stop", str(run), "--now"]) == 0
        shown = capsys.readouterr()
        assert f"the driver of {run} had not ended in 2 s and was killed; the last checkpoint stays" in shown.err
        assert f"Killed after round 1. Go on with: fedray resume {run}\n" in shown.out
    goes_on(tmp_path, straight)


@pytest.mark.parametrize("error", [GetTimeoutError("late"), ActorUnavailableError("silent", b"0" * 16)])
def test_no_answer_is_not_taken_for_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Ray, too, may give up on a process that does not answer."""

    def get(reference: object, timeout: float) -> None:
        raise error

    monkeypatch.setattr(attach, "ray", SimpleNamespace(get=get))
    found = attach.Attached(RunFolder(tmp_path), "", SimpleNamespace(stop=SimpleNamespace(remote=lambda now: None)))
    assert not found.stop(now=True)
    with pytest.raises(RunError, match="has not answered in 30 s: try again, or kill it with --now"):
        found.stop(now=False)
