"""The faults of chaos: each strikes a run, and returns in words what it did."""

from __future__ import annotations

import errno
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos.stage import Stage


@dataclass(frozen=True)
class Scene:
    """A run in progress."""

    run: subprocess.Popen[bytes]
    folder: Path
    stage: Stage
    dice: random.Random


@dataclass(frozen=True)
class Fault:
    """A fault. `strike` causes it, and returns in words what it did.

    `blames`: a client that is in training at two strikes in a round is left out, rightly. `ends`: the run ends with it.
    `needs`: the kind of run that it can strike.
    """

    strike: Callable[[Scene], str]
    blames: bool = False
    ends: bool = False
    needs: str = "any"  # any | two nodes | bucket | disk
    after: int = 0  # rounds that must be done before it strikes


def processes(run: subprocess.Popen[bytes], title: str) -> list[psutil.Process]:
    """The run's processes whose command line or name contains `title`."""
    found = []
    for process in psutil.Process(run.pid).children(recursive=True):
        try:
            if title in " ".join(process.cmdline()) or title in process.name():
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill_all(run: subprocess.Popen[bytes]) -> None:
    """Kill the whole process tree at once, as a power cut does."""
    family = [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=20)


def _kill(title: str, skip: int = 0) -> Callable[[Scene], str]:
    def strike(scene: Scene) -> str:
        there = processes(scene.run, title)[skip:]
        if not there:
            return f"no {title} there"
        process = scene.dice.choice(there)
        try:
            doing = " ".join(process.cmdline())[:40]
            process.kill()
        except psutil.NoSuchProcess:
            return f"{title} had gone"
        return f"killed {doing}"

    return strike


def _stop(seconds: float | None) -> Callable[[Scene], str]:
    def strike(scene: Scene) -> str:
        there = processes(scene.run, "ray::ClientActor")
        if not there:
            return "no client actor there"
        process = scene.dice.choice(there)
        try:
            process.suspend()
            if seconds is not None:
                time.sleep(seconds)
                process.resume()
        except psutil.NoSuchProcess:
            return "the client actor had gone"
        return "stopped a client actor" + ("" if seconds is None else f" for {seconds:g} s")

    return strike


def _everything(scene: Scene) -> str:
    kill_all(scene.run)
    return "killed everything"


def _memory(scene: Scene) -> str:
    (scene.folder.parent / "no-memory").touch()
    return "no memory for a client"


def _disk(scene: Scene) -> str:
    lasting = scene.dice.random() < 0.5
    ahead = scene.dice.randint(1, 60)
    code = errno.ENOSPC if lasting else errno.EIO
    scene.stage.shim.watch(scene.folder, fail_at=ahead, error=code, lasting=lasting)
    return f"the disk {'is full from' if lasting else 'fails at'} call {ahead} on"


def _clock(scene: Scene) -> str:
    jump = scene.dice.choice([-86_400, -3_600, 3_600, 86_400])
    scene.stage.shim.jump(jump)
    return f"the clock jumps by {jump / 3600:+g} h"


def _cut(scene: Scene) -> str:
    seconds = scene.dice.choice([0.3, 3.0, 20.0])
    scene.stage.line.cut(seconds)
    return f"no way to the bucket for {seconds:g} s"


FAULTS = {
    "actor": Fault(_kill("ray::ClientActor"), blames=True),
    "hang": Fault(_stop(None), blames=True, after=3),  # no deadline before such work has been timed
    "slow": Fault(_stop(1.0)),
    "memory": Fault(_memory, blames=True),
    "driver": Fault(_kill(":Driver"), ends=True),
    "everything": Fault(_everything, ends=True),
    "node": Fault(_kill("raylet/raylet", skip=1), ends=True, needs="two nodes"),  # the head starts first
    "gcs": Fault(_kill("gcs_server"), ends=True),
    "disk": Fault(_disk, needs="disk"),
    "clock": Fault(_clock, after=1),  # Ray waits for hours if the clock jumps back while Ray starts
    "cut": Fault(_cut, needs="bucket"),
}
