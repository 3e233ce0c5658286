"""From the process of the user: start Ray, hand a run to a driver actor, and watch it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError

from fedray.core.types import RunError
from fedray.engine import driver as drivers
from fedray.engine.driver import Assignment
from fedray.engine.progress import Display

POLL_SECONDS = 1.0


def connect() -> None:
    """Use the Ray that is there (already initialised, or at RAY_ADDRESS), else start one on this machine."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the behaviour Ray is moving to, without its warning
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for every worker
    ray.init(address=os.environ.get("RAY_ADDRESS") or "local", log_to_driver=False, logging_level="warning", include_dashboard=None)


def resources() -> tuple[float, float]:
    """Cores and GPUs of the whole cluster."""
    total = ray.cluster_resources()
    return float(total.get("CPU", 0)), float(total.get("GPU", 0))


def ship(module: ModuleType) -> None:
    """Send a module of the user's by value: the actors need not be able to import it."""
    if module.__name__ != "__main__" and module.__name__.partition(".")[0] != "fedray":
        cloudpickle.register_pickle_by_value(module)


@ray.remote(num_cpus=1, max_retries=2)
def _call(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)


def parallel(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> Iterator[Any]:
    """`function(item)` for every item on all cores, in order, with a progress bar; a few more than there are cores in flight at a time."""
    connect()
    ahead = 2 * int(resources()[0]) + 2
    shared = ray.put(function)
    queue = iter(items)
    with Display.for_terminal() as display:
        flying = [_call.remote(shared, item) for item in islice(queue, ahead)]
        done = 0
        while flying:
            try:
                result = ray.get(flying.pop(0))
            except RayTaskError as error:
                for reference in flying:
                    ray.cancel(reference)
                raise _cause(error) from None
            flying += [_call.remote(shared, item) for item in islice(queue, 1)]
            done += 1
            display.progress(done, len(items), what)
            yield result


def _cause(error: RayTaskError) -> Exception:
    """What the user's data did wrong, without the engine's own frames around it; anything else as it is."""
    cause = error.cause
    return cause if isinstance(cause, ValueError | RunError) else error


def run(assignment: Assignment) -> dict[str, Any]:
    """Run to the end on a driver actor and show how it goes. Ctrl-C once: end after the round, with a checkpoint; twice: at once."""
    driver = drivers.start(assignment)
    try:
        return _watch(driver, assignment.folder)
    finally:
        ray.kill(driver)


def _watch(driver: Any, folder: Path) -> dict[str, Any]:
    finished = driver.run.remote()
    seen, interrupts = 0, 0
    with Display.for_terminal() as display:
        while True:
            try:
                events = ray.get(driver.events.remote(seen, POLL_SECONDS))
                for event in events:
                    display.show(event)
                    seen = event.number + 1
                if not events and ray.wait([finished], timeout=0)[0]:
                    return dict(ray.get(finished))
            except KeyboardInterrupt:
                interrupts += 1
                driver.stop.remote(now=interrupts > 1)
                display.say("ending after this round; Ctrl-C again ends at once" if interrupts == 1 else "ending now")
                if interrupts > 2:
                    sys.exit(130)
            except RayTaskError as error:
                raise _cause(error) from None
            except (RayActorError, TaskCancelledError) as error:
                raise RunError(f"the driver of {folder} died: {error}; `fedray resume {folder}` goes on from its checkpoint") from None
