"""Runs that outlive their terminal: leave one behind, find the driver of a run folder, watch and stop it, and say how a run ended.

A run folder may come from anybody. Nothing in it is unpickled; and since whoever connects to a Ray trusts it, `driver.json` is followed to
Rays on this machine alone: any other is the one that the user names in RAY_ADDRESS.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError

from fedray.core.types import RunError
from fedray.engine import session
from fedray.engine.driver import ATTACH, NAMESPACE, name_of
from fedray.engine.events import Event
from fedray.engine.folder import RunFolder
from fedray.engine.play import METRICS
from fedray.engine.progress import Display

KNOCK_SECONDS = 2.0  # for a connection to a Ray that is there
ANSWER_SECONDS = 30.0  # for a driver's answer
GRACE_SECONDS = 15.0  # for a command that is to end


@dataclass(frozen=True)
class Standing:
    """What has become of a run in whose folder nobody is at work."""

    state: str  # finished | stopped | killed | failed
    round: int  # of the newest checkpoint
    results: dict[str, Any] = field(default_factory=dict)  # finished: what results.json holds
    error: str = ""  # failed: the last words


def standing(folder: RunFolder) -> Standing:
    """Read from the folder; a ValueError if there is no run in it."""
    if not folder.exists("config.yaml"):
        raise ValueError(f"{folder.place} is not a run folder: it has no config.yaml")
    round = max(folder.saved_rounds(), default=0)
    if folder.exists("error.txt"):
        words = folder.read_text("error.txt").strip().splitlines()
        return Standing("failed", round, error=words[-1] if words else "")
    if folder.exists(ATTACH):  # its driver would have removed it
        return Standing("killed", round)
    if folder.exists("results.json"):
        results = _mapping(folder, "results.json")
        if results.get("rounds", 0) >= round:  # else they are of a shorter run that was taken up again
            return Standing("finished", round, results)
    return Standing("stopped", round)


def find(folder: RunFolder) -> Attached | None:
    """The driver at work in a folder, None if there is none. Takes seconds where its Ray is gone.

    Raises ValueError if the driver is, or was, on another machine, or if what listens there does not let this process in.
    """
    if not folder.exists(ATTACH):
        return None
    told = _mapping(folder, ATTACH)
    address, host = str(told.get("address", "")), str(told.get("host", "?"))
    if not _is_here(address):
        if (outside := session.outside()) is None:
            raise ValueError(
                f"{folder.place}: its driver was started on {host} and has not told that it ended: do this on that machine, or set "
                f"RAY_ADDRESS={address} if you trust the Ray there"
            )
    elif _answers(address):
        outside = address
    else:
        return None
    address = _join(outside, address)
    try:
        return Attached(folder, address, ray.get_actor(name_of(folder.place), namespace=NAMESPACE))
    except ValueError:  # Ray's: there is none of that name
        return None


class Attached:
    """A driver that another process started."""

    def __init__(self, folder: RunFolder, address: str, driver: Any) -> None:
        self.folder, self.address, self._driver = folder, address, driver

    def watch(self, display: Display, past: bool = True) -> None:
        """Show what the run says until it is over, whatever ends it; first, in short, what it has said before."""
        batches = self._batches()
        before = next(batches, [])
        if past:
            display.catch_up(self.folder.rows(METRICS), before)
        for batch in batches:
            for event in batch:
                display.show(event)

    def stop(self, now: bool) -> None:
        """Ask the driver to end after its round with a checkpoint, or at once."""
        try:
            ray.get(self._driver.stop.remote(now), timeout=ANSWER_SECONDS)
        except GetTimeoutError as error:
            raise RunError(f"the driver of {self.folder.place} has not answered in {ANSWER_SECONDS:.0f} s: try again, or --now") from error
        except RayError:  # it has ended in the meantime
            pass

    def _batches(self) -> Iterator[list[Event]]:
        """Events as they come, the first time those there are, perhaps none. Ends with the run, or when its driver or its Ray is gone."""
        seen, patience = 0, 0.0
        while True:
            answer = self._driver.events.remote(seen, patience)
            try:
                while not ray.wait([answer], timeout=KNOCK_SECONDS)[0]:
                    if not _answers(self.address):
                        return
                batch: list[Event] = ray.get(answer)
            except ActorUnavailableError:  # a hiccup of the network, or its death is not yet known
                if not _answers(self.address):
                    return
                time.sleep(session.POLL_SECONDS)
                continue
            except RayError:
                return
            yield batch
            if batch:
                seen = batch[-1].number + 1
                if batch[-1].kind == "end":
                    return
            patience = session.POLL_SECONDS


def leave_running(command: Sequence[str], folder: RunFolder, log: Path, say: Callable[[str], None]) -> int | None:
    """Start a command that runs in `folder`, in a session of its own, with what it says in `log`, and pass that on to `say` meanwhile.

    None: the run is under way, and no longer tied to this process. Else the command has ended, with this status.
    """
    before = _text(folder, ATTACH)  # left by a run that was killed
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as sink, log.open(encoding="utf-8", errors="replace") as source:
        source.seek(0, os.SEEK_END)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
        try:
            while True:
                status = process.poll()
                under_way = status is None and _text(folder, ATTACH) not in ("", before)
                if words := source.read():
                    say(words)
                if under_way:
                    threading.Thread(target=process.wait, daemon=True).start()  # reaps it, as long as this process is there
                if status is not None or under_way:
                    return status
                time.sleep(0.2)
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have it end by itself, since it ends its Ray then; if it does not, end it and what it started."""
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _text(folder: RunFolder, name: str) -> str:
    try:
        return folder.read_text(name)
    except FileNotFoundError:
        return ""


def _mapping(folder: RunFolder, name: str) -> dict[str, Any]:
    try:
        read = json.loads(folder.read_text(name))
    except json.JSONDecodeError as error:
        raise ValueError(f"{folder.storage.shown(name)}: is not JSON ({error})") from error
    if not isinstance(read, dict):
        raise ValueError(f"{folder.storage.shown(name)}: is not what fedray writes there")
    return read


def _is_here(address: str) -> bool:
    """Whether an address, host:port, is one of this machine's: nobody else can listen there."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


def _answers(address: str) -> bool:
    """Whether somebody listens there. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS):
            return True
    except (OSError, ValueError):
        return False


def _join(where: str, address: str) -> str:
    """Connect to the Ray there, unless this process is connected to that of `address`; returns the address as Ray has it."""
    if ray.is_initialized():
        if (joined := str(ray.get_runtime_context().gcs_address)) != address:
            raise RunError(f"this process is connected to the Ray at {joined}, and the run to that at {address}")
        return joined
    session.join(where)
    return str(ray.get_runtime_context().gcs_address)
