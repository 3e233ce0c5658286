"""Runs that outlive their terminal: detach a run, find the driver of a run folder, watch it, stop it.

A run folder may come from anybody. Nothing in it is unpickled. A process that connects to a Ray trusts that Ray, so
`driver.json` is followed only to a Ray on this machine. The user must name any other Ray in RAY_ADDRESS.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError

from fedray.core.types import RunError
from fedray.engine.cluster.local_ray import is_loopback
from fedray.engine.cluster.ray_private import process_of
from fedray.engine.cluster.reservation import NAMESPACE, name_of
from fedray.engine.driver import session
from fedray.engine.telemetry.events import Event
from fedray.engine.telemetry.progress import Display
from fedray.runs.folder import METRICS, RunFolder
from fedray.runs.standing import ATTACH

ANSWER_SECONDS = 30.0  # for a driver to answer
NOW_SECONDS = 60.0  # for a run to end at once; then its driver is killed
GRACE_SECONDS = 15.0  # for a process to end


def find(folder: RunFolder) -> Attached | None:
    """The driver that is using a folder; None: there is none. Takes seconds if the driver's Ray is gone.

    ValueError: the driver is, or was, on another machine, or its Ray refuses this process.
    """
    if not folder.exists(ATTACH):
        return None
    told = folder.read_json(ATTACH)
    address, host = str(told.get("address", "")), str(told.get("host", "?"))
    loopback = is_loopback(address)
    there = "" if loopback else f", or set RAY_ADDRESS={address} if you trust the Ray there"
    elsewhere = (
        f"{folder.place}: its driver was started on {host}, and nothing says that it has ended: run this command on "
        f"that machine{there}"
    )
    if not _is_here(address) or (loopback and told.get("host", socket.gethostname()) != socket.gethostname()):
        if loopback or (outside := session.outside()) is None:
            raise ValueError(elsewhere)
    elif session.answers(address):
        _check_owner(folder, address)
        outside = address
    else:
        return None
    address = _join(outside, address)
    try:
        return Attached(folder, address, ray.get_actor(name_of(folder.place), namespace=NAMESPACE))
    except ValueError:  # from Ray: there is no actor of that name
        if address != told.get("address"):  # RAY_ADDRESS is another cluster
            raise ValueError(elsewhere) from None
        return None


def _check_owner(folder: RunFolder, address: str) -> None:
    """ValueError: another user could have written driver.json, whose Ray would get this user's token."""
    if folder.root is None:
        return
    file = folder.root / ATTACH
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & stat.S_IWOTH:
        raise ValueError(
            f"{file} is not a file that this user alone can write: set RAY_ADDRESS={address} if you trust the Ray there"
        )


class Attached:
    """A driver that another process started."""

    def __init__(self, folder: RunFolder, address: str, driver: Any) -> None:
        self.folder, self.address, self._driver = folder, address, driver

    def watch(self, display: Display, past: bool = True, seconds: float | None = None) -> bool:
        """Show the run's events until the run is over; with `past`, first a summary of earlier events.

        Returns False if the run was not over after so many seconds.
        """
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        batches = self._batches(deadline)
        before = next(batches, [])
        if past:
            display.catch_up(self.folder.rows(METRICS), before)
        for batch in batches:
            for event in batch:
                display.show(event)
        return time.monotonic() <= deadline

    def stop(self, now: bool) -> bool:
        """Ask the driver to end after its round with a checkpoint, or at once (`now`).

        If the driver does not answer, returns False with `now`, else raises RunError.
        """
        try:
            ray.get(self._driver.stop.remote(now), timeout=ANSWER_SECONDS)
        except (GetTimeoutError, ActorUnavailableError) as error:  # the second: Ray has given up on the driver
            if now:
                return False
            raise RunError(
                f"the driver of {self.folder.place} has not answered in {ANSWER_SECONDS:.0f} s: try again, or "
                "kill it with --now"
            ) from error
        except RayError:  # the driver has ended in the meantime
            pass
        return True

    def kill(self, answered: bool) -> str:
        """Kill a driver and its client actors; returns a message. `answered`: the driver answered, but did not end.

        Ray takes seconds to kill a process that does not respond, and the Ray of a single run ends before that, with
        its driver. A process on this machine is therefore killed here. RunError: a process still holds the folder.
        """
        pid, host = process_of(self._driver)  # not from driver.json, which may come from anybody
        ray.kill(self._driver)
        if _is_here(f"{host}:0"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + GRACE_SECONDS
        while True:
            try:
                with self.folder.locked():
                    what = f"not ended in {NOW_SECONDS:.0f}" if answered else f"not answered in {ANSWER_SECONDS:.0f}"
                    return f"the driver of {self.folder.place} had {what} s and was killed; the last checkpoint stays"
            except ValueError as error:
                if time.monotonic() > deadline:
                    raise RunError(
                        f"{self.folder.place}: the driver was killed, but a process still holds the folder: end "
                        f"process {pid} on {host}, then `fedray resume` continues"
                    ) from error
                time.sleep(session.POLL_SECONDS)

    def _batches(self, deadline: float) -> Iterator[list[Event]]:
        """Batches of events; the first holds all events so far, perhaps none.

        Ends with the run, or when its driver or its Ray is gone.
        """
        seen, patience = 0, 0.0
        while time.monotonic() <= deadline:
            answer = self._driver.events.remote(seen, patience)
            try:
                while not ray.wait([answer], timeout=session.KNOCK_SECONDS)[0]:
                    if time.monotonic() > deadline or not session.answers(self.address):
                        return
                batch: list[Event] = ray.get(answer)
            except ActorUnavailableError:  # a network failure, or a death that Ray has not noticed yet
                if not session.answers(self.address):
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
    """Start a command that executes the run of `folder`, in a new session. Its output goes to `log` and to `say`.

    Returns None once the run is under way and no longer tied to this process, or the exit status if the command ended.
    """
    before = _text(folder, ATTACH)  # a killed run leaves it behind
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
                    threading.Thread(target=process.wait, daemon=True).start()  # reaps the process
                if status is not None or under_way:
                    return status
                time.sleep(0.2)
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, which then ends its Ray; kill its session if it does not end."""
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


def _is_here(address: str) -> bool:
    """Whether an address, host:port, belongs to this machine: only then can a socket be bound to it here."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        family, kind, protocol, _, endpoint = socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(endpoint)
    except OSError:
        return False
    return True


def _join(where: str, address: str) -> str:
    """Connect to the Ray at `where`, unless this process is already connected to `address`; returns Ray's address."""
    if ray.is_initialized():
        if (joined := str(ray.get_runtime_context().gcs_address)) != address:
            raise RunError(f"this process is connected to the Ray at {joined}, and the run to that at {address}")
        return joined
    session.join(where)
    return str(ray.get_runtime_context().gcs_address)
