"""The driver actor: it owns the run folder, has the rounds played, and says what happens. It needs no GPU."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedray.core.types import RunError
from fedray.engine.actors import ClientActor
from fedray.engine.events import Event, Events
from fedray.engine.folder import RunFolder
from fedray.engine.holding import scratch
from fedray.engine.play import Play
from fedray.engine.pool import Pool, Stopped
from fedray.engine.resources import DRIVER_CPUS, Share
from fedray.engine.rounds import Plan, Rounds
from fedray.engine.work import Program

NAMESPACE = "fedray"
ATTACH = "driver.json"  # where the driver of a run folder is found while it is at work
LINGER_SECONDS = 10.0  # how long a detached driver stays for those who watch its end


@dataclass(frozen=True)
class Assignment:
    """What a driver is to do."""

    name: str
    program: Program
    assets: Mapping[str, Any]  # the algorithm's, taken before it was copied
    plan: Plan
    share: Share
    folder: Path | str  # of the run: a path, or the URI of an object store
    texts: Mapping[str, str] = field(default_factory=dict)  # files that describe the run, written once the folder is locked


class Driver:
    """A Ray actor of several threads: one runs, the others answer `events`, `note` and `stop`; each who watches holds one for a second."""

    def __init__(self, assignment: Assignment, detached: bool) -> None:
        self.assignment, self.detached = assignment, detached
        self.folder = RunFolder(assignment.folder)
        self.log = Events()
        self._wish = "no"  # of the user, for the end: no | after the round | now

    def events(self, after: int, timeout: float) -> list[Event]:
        return self.log.after(after, timeout)

    def note(self, kind: str, data: dict[str, Any]) -> None:
        self.log.add(kind, data)

    def stop(self, now: bool) -> None:
        """End after the current round with a checkpoint, or at once."""
        self._wish = "now" if now else "after the round"

    def run(self) -> dict[str, Any]:
        """Play the run to its end; returns what results.json holds. The last event tells how it ended."""
        try:
            with self.folder.locked():
                results = self._run()
            self.note("end", {"results": results})
            return results
        except Exception as error:
            self.note("end", {"error": f"{error}"})
            raise
        finally:
            if self.detached:  # nobody else ends it
                threading.Timer(LINGER_SECONDS, os._exit, (0,)).start()

    def _run(self) -> dict[str, Any]:
        run = hashlib.blake2b(self.folder.place.encode(), digest_size=8).hexdigest()
        play = Play(self.assignment.name, self.assignment.program, self.assignment.plan, self.folder, self.note, lambda: self._wish)
        pool = None
        try:
            self._open()
            pool = self._pool(run)
            asset_bytes = sum(int(getattr(asset, "nbytes", 0)) for asset in self.assignment.assets.values())
            rounds = Rounds(self.assignment.program, self.assignment.plan, pool, scratch(run), asset_bytes, self.note)
            return play.run(pool, rounds)
        except Stopped:
            return play.stopped()
        except Exception:  # whatever it is: kept with its traceback beside the run, and passed on
            self._keep("error.txt", traceback.format_exc())
            raise
        finally:
            if pool is not None:
                pool.close()
            shutil.rmtree(scratch(run), ignore_errors=True)
            self.folder.remove(ATTACH)

    def _open(self) -> None:
        """Say what runs here, and where its driver is."""
        for name, text in self.assignment.texts.items():
            self.folder.write_text(name, text)
        for old in ("error.txt", "results.json"):
            self.folder.remove(old)
        me = {"address": ray.get_runtime_context().gcs_address, "pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
        self.folder.write_json(ATTACH, me)

    def _keep(self, name: str, text: str) -> None:
        try:
            self.folder.write_text(name, text)
        except (OSError, RunError) as error:  # a full disk, most likely that of which the text tells
            self.note("warning", {"text": f"{name} could not be written: {error}"})

    def _pool(self, run: str) -> Pool:
        share, engine = self.assignment.share, self.assignment.plan.engine
        program = ray.put(self.assignment.program)
        assets = ray.put(dict(self.assignment.assets))
        me = ray.get_runtime_context().current_actor
        hold, own = engine.hold_gb * 1e9, engine.placement == "dedicated"
        several = sum(node["Alive"] for node in ray.nodes()) > 1
        if several:
            self.folder.write_text("probe/driver", run)

        def make() -> Any:
            remote = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0)(ClientActor)
            return remote.remote(program, assets, share.gpus, hold, own, run, me)

        self.note("phase", {"text": f"starting {share.actors} client actor{'s' * (share.actors > 1)}"})
        folder = str(self.assignment.folder) if several else None
        warn = lambda text: self.note("warning", {"text": text})  # noqa: E731
        pool = Pool(make, share.actors, engine.replacements, lambda: self._wish == "now", folder, warn)
        for node in pool.nodes if several else ():
            if not self.folder.exists(f"probe/{node}"):
                raise RunError(
                    f"node {node} does not see the run folder {self.folder.place}: with several nodes choose --out on a shared folder or "
                    "an object store"
                )
        return pool


def name_of(place: str) -> str:
    """The name, in `NAMESPACE`, of the driver that is at work in a run folder (`RunFolder.place`): one in a cluster."""
    return f"driver of {place}"


def start(assignment: Assignment, detached: bool = False) -> Any:
    """A driver actor on this node, which holds the run folder. `detached`: it outlives the process that made it."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    life = {"lifetime": "detached"} if detached else {}
    place = RunFolder(assignment.folder).place
    remote = ray.remote(num_cpus=DRIVER_CPUS, max_concurrency=16, max_restarts=0, scheduling_strategy=here)(Driver)
    try:
        return remote.options(name=name_of(place), namespace=NAMESPACE, **life).remote(assignment, detached)
    except ValueError as error:  # Ray's, for a name that is taken
        raise ValueError(f"{place}: another run is at work in this folder: `fedray watch {place}` shows it") from error
