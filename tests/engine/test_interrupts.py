"""Ctrl-C ends a run after its round, SIGTERM at once; the caller gets an exception, and the old handlers return."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedray.engine.driver import session
from fedray.engine.driver.interrupts import Terminated, terminable
from fedray.engine.telemetry.progress import Display
from fedray.runs.folder import RunFolder
from tests.engine import toys, waiting
from tests.engine.waiting import Waiting, appears


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Handle Ctrl-C as Python does: a shell that starts the tests in the background makes them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.long
def test_ctrl_c_once_ends_after_the_round(
    cluster: None, interruptible: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.ship(waiting)
    said: list[str] = []

    def say(display: Display, text: str) -> None:
        said.append(text)
        if text.startswith("ending after this round"):
            time.sleep(0.5)
            (tmp_path / "go").touch()

    def interrupt() -> None:
        appears(tmp_path / "waits")
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Display, "say", say)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt, match="stopped after round 2; `fedray resume .* continues from"):
        toys.run(tmp_path / "run", algorithm=Waiting, settings=toys.ToySettings(folder=str(tmp_path)))
    thread.join()
    assert said[-1].startswith("round 2/4")
    assert RunFolder(tmp_path / "run").saved_rounds()[-1] == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.long
def test_sigterm_ends_at_once_with_the_last_checkpoint(cluster: None, tmp_path: Path) -> None:
    """Cluster managers send it. Ray's own handler would abort the process."""
    session.ship(waiting)
    before = signal.getsignal(signal.SIGTERM)

    def terminate() -> None:
        appears(tmp_path / "waits")
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    with pytest.raises(Terminated, match="stopped after round 1; `fedray resume"):
        toys.run(tmp_path / "run", algorithm=Waiting, settings=toys.ToySettings(folder=str(tmp_path)))
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(Terminated), terminable():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert signal.getsignal(signal.SIGTERM) is before
