"""Client actors: processes that run jobs on the data of any client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import ray
import torch

from fedray.core.pulse import heard_by
from fedray.core.types import RunError
from fedray.engine.actors import gpu
from fedray.engine.actors.spread import Spread
from fedray.engine.cluster.mixed import Setup
from fedray.engine.cluster.nodes import oom_kills
from fedray.engine.jobs.deaths import doom
from fedray.engine.jobs.holding import DedicatedStates, Holder, scratch
from fedray.engine.jobs.job import Job, Result_co, Workplace
from fedray.engine.jobs.work import Program
from fedray.engine.telemetry.signs import Signs
from fedray.storage import temporary
from fedray.storage.base import Storage
from fedray.storage.files import StorageError
from fedray.storage.opening import open_storage


class Answer(NamedTuple):
    """What a client actor tells once it can work. `oom_kills`: processes that its node's kernel has killed for memory.

    `setup`: what its node's results depend on; None: all actors are on the driver's node.
    """

    node: str
    device: str
    pid: int
    oom_kills: int
    setup: Setup | None = None


class ClientActor:
    """Runs jobs one after another. A result depends only on the job and its inputs, so any actor may rerun a job.

    Between jobs an actor holds updates until the whole cohort's weights are known. A dedicated actor also keeps the
    state of its client.
    """

    def __init__(
        self,
        program: Program,
        assets: Mapping[str, Any],
        gpus: float,
        hold: float,
        dedicated: bool,
        run: str,
        driver: Any,
    ) -> None:
        """`hold`: bytes of updates to hold in memory. `dedicated`: the actor trains one client.

        `run` names the actor's folder on local disk. `driver`: the driver actor, which receives progress and knows the
        idle actors (None: this actor works alone).
        """
        gpu.set_up(gpus)
        gpu.keep_activations(program.large)
        if dedicated:
            program = replace(program, states=DedicatedStates(program.states))
        self.gpus, self.driver, self.run_folder = gpus, driver, scratch(run)
        temporary.sweep()  # files that killed actors left on this machine
        holder = Holder(self.run_folder / f"held-{os.getpid()}", hold)
        self.workplace = Workplace(program, tuple(program.algorithm.layers()), assets, holder, self._progress())
        if driver is not None:
            self.workplace.spread = Spread(driver, self.workplace.init_parts)
        self._signs = Signs(self._alive, self.workplace.progress)

    def ping(self, folder: str | None) -> Answer:
        """Answer once this actor can work.

        `folder`: the run folder, to check that this node can read and write it (None: there is one node).
        """
        if self.gpus:
            if not torch.cuda.is_available():
                raise RunError(
                    f"Ray counts {ray.get_gpu_ids()} as this actor's GPUs, but torch finds none: "
                    "set engine.gpus_per_client=0"
                )
            self.workplace.device = gpu.take(self.gpus)  # Ray shows this process only the GPU that it reserves
        node = ray.get_runtime_context().get_node_id()
        answer = Answer(node, self.workplace.device, os.getpid(), oom_kills())
        if folder is None:
            return answer
        self._probe(open_storage(folder), node)
        return answer._replace(setup=Setup.here(self.gpus > 0))

    def _probe(self, folder: Storage, node: str) -> None:
        where = f"node {ray.util.get_node_ip_address()}"
        try:
            folder.write(f"probe/{node}", folder.read("probe/driver"))
        except (OSError, StorageError) as error:
            raise RunError(
                f"{where} cannot read and write the run folder {folder.place} ({error}): with several nodes choose "
                "--out on a shared folder or an object store, to which all have access"
            ) from error
        try:
            data = self.workplace.program.data
            data.load(data.client_ids()[0])
        except Exception as error:
            raise RunError(
                f"{where} cannot read the clients' data ({error}): set FEDRAY_CACHE to a folder that all nodes see, "
                "or FEDRAY_SHARED_CACHE"
            ) from error

    def run(self, job: Job[Result_co], *inputs: Any) -> Result_co:
        """Run a job on its inputs. Doomed: this actor must end (out of memory, a broken GPU context)."""
        try:
            with heard_by(self._signs):
                return job.run(self.workplace, *inputs)
        except Exception as error:
            if (doomed := doom(error)) is not None:
                raise doomed from error
            raise

    def clear(self) -> None:
        """Remove this actor's files from the machine's disk."""
        self.workplace.holder.clear()
        temporary.sweep()
        # Markers of this machine's clients, which the driver no longer reads.
        for marker in temporary.found(self.run_folder, "lane_*", "client_*"):
            marker.unlink(missing_ok=True)
        with suppress(OSError):  # another actor still has files in it
            self.run_folder.rmdir()

    def _alive(self) -> None:
        if self.driver is not None:
            self.driver.heard.remote(ray.get_runtime_context().get_node_id(), os.getpid())

    def _progress(self) -> Callable[[int, int, str], None]:
        last = [0.0]

        def report(done: int, of: int, what: str) -> None:
            now = time.monotonic()
            if self.driver is not None and (now - last[0] > 0.5 or done == of):
                last[0] = now
                self.driver.note.remote("progress", {"done": done, "of": of, "what": what})
                self._alive()  # one job may train a seed model for half an hour

        return report
