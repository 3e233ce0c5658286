"""The user's process: it starts Ray, hands a run to a driver actor, and watches the driver."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from fedray.core.machine import for_ray
from fedray.core.types import RunError
from fedray.engine.actors.ray_deaths import DEATHS, eviction, started_in_time
from fedray.engine.cluster import reservation
from fedray.engine.cluster.local_ray import folders, is_loopback
from fedray.engine.cluster.nodes import on_this_node
from fedray.engine.cluster.ray_auth import secure_token
from fedray.engine.cluster.ray_private import on_loopback, use_token
from fedray.engine.cluster.resources import Node
from fedray.engine.driver import driver as drivers
from fedray.engine.driver.driver import Assignment
from fedray.engine.driver.interrupts import Interrupts, handler_kept
from fedray.engine.telemetry.events import Event
from fedray.engine.telemetry.progress import Display
from fedray.runs.folder import RunFolder

POLL_SECONDS = 1.0
KNOCK_SECONDS = 2.0  # for a connection to a running Ray
START_SECONDS = 20.0  # until the user is told that the driver has not started
GCS_SECONDS = 40.0  # that Ray's head process (GCS) may be gone; after 60 s Ray kills this process without an error
ADDRESS = re.compile(r"auto|(ray://)?[\w.:\[\]-]+:\d{1,5}")  # of a Ray


def outside() -> str | None:
    """The address in RAY_ADDRESS of a Ray that outlives this process; None: not set. ValueError: not an address."""
    address = os.environ.get("RAY_ADDRESS", "")
    if address in ("", "local"):
        return None
    if not ADDRESS.fullmatch(address):
        raise ValueError(
            f"RAY_ADDRESS={address} is not a Ray address, such as 10.0.0.1:6379 or auto: correct or unset it"
        )
    return address


def connect(lasting: bool = False) -> None:
    """Connect to the Ray at RAY_ADDRESS, or start one on this machine, unless this process has a Ray already.

    `lasting`: the Ray must outlive this process (else ValueError).
    """
    address = outside()
    if ray.is_initialized():
        return
    # Ray's future behaviour, without its warning.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for every worker
    if address is not None:
        join(address)
    elif lasting:
        raise ValueError(
            "to detach a run from this process set RAY_ADDRESS to a Ray that outlives it; `fedray run --detach` does "
            "not need it"
        )
    else:
        dashboard = bool(os.environ.get("FEDRAY_DASHBOARD"))  # it starts eleven processes
        may = for_ray()  # Ray itself counts all cores of the machine
        secure_token()
        use_token()
        with handler_kept(), started_in_time(), on_loopback():
            context = ray.init(
                address="local",
                log_to_driver=False,
                logging_level="warning",
                include_dashboard=dashboard,
                num_cpus=may["num_cpus"],
                _memory=may.get("memory"),
                object_store_memory=may.get("object_store_memory"),
                **folders(),
            )
        if dashboard:
            print(f"Ray's dashboard: http://{context.dashboard_url}", file=sys.stderr)


def join(address: str) -> None:
    """Connect to a running Ray. ValueError: it cannot be reached, or refuses this process."""
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")  # one attempt of half a minute, not twenty
    try:
        with handler_kept(), on_loopback() if is_loopback(address) else nullcontext():
            ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, RuntimeError, RayError) as error:
        raise ValueError(
            f"cannot connect to Ray at {address}: {str(error).splitlines()[0]} (if that Ray was started with a token, "
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN; unset RAY_ADDRESS to start a local Ray)"
        ) from error


def answers(address: str) -> bool:
    """Whether a process listens at an address. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def resources() -> list[Node]:
    """The resources of each live machine of the cluster."""
    here = ray.get_runtime_context().get_node_id()  # the driver runs here too
    alive = [(node["NodeID"], node["Resources"]) for node in ray.nodes() if node["Alive"]]
    return [
        Node(float(has.get("CPU", 0)), float(has.get("GPU", 0)), has.get("memory"), name == here) for name, has in alive
    ]


def device(gpus: float) -> str:
    """What client actors that reserve `gpus` GPUs each compute on: the CPU, or the cluster's types of GPU."""
    mark = "accelerator_type:"
    types = sorted(name.removeprefix(mark) for name in ray.cluster_resources() if name.startswith(mark))
    return "CPU" if not gpus else " ".join(["GPU", *types])


def ship(module: ModuleType) -> None:
    """Send a user's module to the actors by value, since they may not be able to import it."""
    if module.__name__ != "__main__" and module.__name__.partition(".")[0] != "fedray":
        cloudpickle.register_pickle_by_value(module)


@ray.remote(num_cpus=1, max_retries=2)
def _call(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)


def parallel(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> Iterator[Any]:
    """Yield `function(item)` for every item, in order, with a progress bar.

    Runs on the cores of this machine only: the files are in its cache, which other machines may not see.
    """
    connect()
    call = _call.options(scheduling_strategy=on_this_node())
    cpus = sum(node.cpus for node in resources() if node.driver)
    if cpus < 1:
        raise ValueError(f"{what}: Ray has no core of this machine: start it here with one, ray start --num-cpus=1")
    ahead = 2 * int(cpus) + 2
    shared, queue = ray.put(function), iter(items)
    with Display.for_terminal() as display:
        flying = [call.remote(shared, item) for item in islice(queue, ahead)]
        done = 0
        try:
            while flying and not ray.wait(flying[:1], timeout=START_SECONDS)[0]:
                if who := reservation.in_the_way(str(ray.get_runtime_context().get_node_id()), cpus):
                    display.say(f"{what}: waiting for a core of this machine, which {who} holds")
            while flying:
                result = ray.get(flying[0])
                flying = [*flying[1:], *(call.remote(shared, item) for item in islice(queue, 1))]
                done += 1
                display.progress(done, len(items), what)
                yield result
        except RayTaskError as error:
            # Tasks in flight end by themselves. `ray.cancel` on a task that is just ending would kill this process:
            # "Check failed: Tried to complete task that was not pending" (Ray 2.60).
            raise cause_of(error) from None


def beside(function: Callable[[], Any]) -> None:
    """Call `function` in another process of this machine and do not wait for it: it may only save time."""
    _call.options(scheduling_strategy=on_this_node(), num_cpus=0, max_retries=0).remote(lambda _: function(), None)


def cause_of(error: RayTaskError) -> Exception:
    """A ValueError or RunError of the task without Ray's frames around it; any other error unchanged."""
    cause = error.cause
    return cause if isinstance(cause, ValueError | RunError) else error


def run(assignment: Assignment) -> dict[str, Any]:
    """Run a federation to its end on a driver actor and show its events.

    Ctrl-C once ends the run after its round, with a checkpoint; twice, or SIGTERM, at once. KeyboardInterrupt: so it
    ended.
    """
    driver = drivers.start(assignment)
    try:
        _await_start(driver)
        return _watch(driver, assignment.folder)
    finally:
        end(driver, assignment.folder)


def end(driver: Any, folder: Path | str) -> None:
    """Kill a driver, and give back what it has reserved."""
    ray.kill(driver)
    if answers(str(ray.get_runtime_context().gcs_address)):  # else Ray would wait for a minute
        reservation.release(RunFolder(folder).place)


def detach(assignment: Assignment) -> None:
    """Start a driver that outlives this process. Returns once the run is under way, or raises the run's error."""
    driver = drivers.start(assignment, detached=True)
    try:
        _await_start(driver)
        finished = driver.run.remote()
        while not (events := _ask(driver, 0, assignment.folder)):
            pass
        if events[-1].kind == "end":
            _end(finished, assignment.folder)
    except BaseException:  # Ctrl-C too: the run is not detached yet
        ray.kill(driver)
        raise


def _await_start(driver: Any) -> None:
    """Wait until the driver runs. Ctrl-C ends the wait."""
    answer = driver.events.remote(0, 0.0)
    while not ray.wait([answer], timeout=START_SECONDS)[0]:
        print("waiting for the run's driver: Ray is still starting its process", file=sys.stderr)


def _watch(driver: Any, folder: Path | str) -> dict[str, Any]:
    seen, obeyed, ray_at = 0, 0, _Head(folder)
    with Interrupts() as interrupts, Display.for_terminal() as display:
        finished = driver.run.remote()
        while True:
            ray_at.check()
            if interrupts.count > obeyed:
                obeyed = interrupts.count
                driver.stop.remote(now=obeyed > 1)
                display.say("ending after this round; Ctrl-C again ends at once" if obeyed == 1 else "ending now")
            for event in _ask(driver, seen, folder):
                display.show(event)
                seen = event.number + 1
                if event.kind == "end":
                    results = _end(finished, folder)
                    stopped = "stopped" in results
                    # A run may be finished before it hears of the signal. A caller's loop must end even so.
                    if interrupts.count > 1 or (obeyed and stopped):
                        if not stopped:
                            raise interrupts.error(f"{RunFolder(folder).place} is finished, with results.json")
                        raise interrupts.error(f"stopped after round {results['stopped'] or 0}; {_remedy(folder)}")
                    return results


class _Head:
    """Ray's head process (GCS). Without it a run continues for a while, but replaces no actor and receives no stop."""

    def __init__(self, folder: Path | str) -> None:
        self.folder, self.address = folder, str(ray.get_runtime_context().gcs_address)
        self._seen = self._knocked = time.monotonic()

    def check(self) -> None:
        """Check that the process answers, at most every few seconds. RunError: it has been gone for too long."""
        if time.monotonic() - self._knocked < 5 * POLL_SECONDS:
            return
        there = answers(self.address)
        self._knocked = time.monotonic()
        if there:
            self._seen = self._knocked
        elif self._knocked - self._seen > GCS_SECONDS:
            raise RunError(f"Ray's head process (GCS) at {self.address} is gone; {_remedy(self.folder)}")


def _ask(driver: Any, seen: int, folder: Path | str) -> list[Event]:
    """The driver's next events; none if it cannot be reached for now."""
    try:
        return list(ray.get(driver.events.remote(seen, POLL_SECONDS)))
    except ActorUnavailableError:  # a network failure, or a death that Ray has not noticed yet
        time.sleep(POLL_SECONDS)
        return []
    except DEATHS as error:
        raise _died(folder, error) from None


def _end(finished: Any, folder: Path | str) -> dict[str, Any]:
    """The result of a run that has ended; raises the run's error in the user's words."""
    try:
        return dict(ray.get(finished))
    except RayTaskError as error:
        raise cause_of(error) from None
    except RayError as error:
        raise _died(folder, error) from None


def _died(folder: Path | str, error: Exception) -> RunError:
    why = eviction(error) or str(error).splitlines()[0]  # Ray's other lines name its actor, and guess
    return RunError(f"the driver of {RunFolder(folder).place} died: {why}; {_remedy(folder)}")


def _remedy(folder: Path | str) -> str:
    return f"`fedray resume {quote(RunFolder(folder).place)}` continues from its checkpoint"
