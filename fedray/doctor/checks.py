"""Checks that start nothing: cores, memory, disk, GPUs, versions, environment variables and the cache.

Imports little of fedray, so that it can report why the rest does not load.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import ray
import torch

import fedray
from fedray.core.environment import processor
from fedray.core.machine import allowed, meminfo
from fedray.storage.cache import cache_root
from fedray.storage.cache_entries import KINDS, entries

SHM_BYTES, DISK_BYTES = 1e9, 2e9  # less is a problem; Docker's default is 64 MB of /dev/shm
LOAD_ERRORS = (ImportError, OSError, RuntimeError)  # of a missing or incompatible package


@dataclass(frozen=True)
class Problem:
    """A problem with its remedy; `stops`: a run would not work."""

    text: str
    stops: bool = False


@dataclass
class Findings:
    """Lines of the page (label, text), and problems."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, text: str, stops: bool = False) -> None:
        self.problems.append(Problem(text, stops))


def machine() -> Findings:
    """Processor, cores, memory, disks and shared memory."""
    limits, there = allowed(), os.cpu_count() or 1
    cores = limits.whole_cores()
    fewer = {name: f"{count:g}" for name, count in limits.cores.items() if count < there}
    less = {name: size(count) for name, count in limits.memory.items()}
    found = Findings(
        [
            ("processor", processor()),
            ("cores", f"{cores}{f' of {there}' if cores < there else ''} for this process, {_limited(fewer)}"),
            ("memory", f"{size(meminfo('MemTotal'))}, {size(meminfo('MemAvailable'))} free, {_limited(less)}"),
        ]
    )
    disk(found, "disk, cache", cache_root(), "choose another cache with FEDRAY_CACHE")
    disk(found, "disk, here", Path.cwd(), "put run folders elsewhere with --out")
    shared_memory(found, Path("/dev/shm"))
    return found


def _limited(limits: Mapping[str, str]) -> str:
    return ", ".join(f"limited to {limit} by {name}" for name, limit in limits.items()) or "no limit"


def disk(found: Findings, label: str, place: Path, otherwise: str, least: float = DISK_BYTES) -> None:
    """Free space of the disk of `place`; less than `least` bytes is a problem, with the remedy `otherwise`."""
    usage = shutil.disk_usage(_existing(place))
    found.lines.append((label, f"{size(usage.free)} free of {size(usage.total)} ({place})"))
    if usage.free < least:
        found.problem(f"{place} has {size(usage.free)} of disk left: make room, or {otherwise}")


def shared_memory(found: Findings, place: Path, least: float = SHM_BYTES) -> None:
    """Free space of the tmpfs at `place`; less than `least` bytes is a problem."""
    if not place.is_dir():
        found.problem(
            f"there is no {place}: Ray's object store will be on disk, which slows every broadcast. Mount a tmpfs there"
        )
        return
    usage = shutil.disk_usage(place)
    found.lines.append((str(place), f"{size(usage.total)}, {size(usage.free)} free (for Ray's object store)"))
    if usage.free < least:
        found.problem(
            f"{place} has {size(usage.free)} free: Ray's object store will be on disk, which slows every broadcast. "
            "In a container: --shm-size=4g (Kubernetes: an emptyDir of medium Memory); otherwise remove files there"
        )


def gpus(driver: Path = Path("/proc/driver/nvidia/version")) -> Findings:
    """The GPUs that torch sees, and a driver that torch cannot use."""
    found = Findings()
    with warnings.catch_warnings(record=True) as said:  # torch warns of an incompatible driver
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(count):
        card = torch.cuda.get_device_properties(index)
        found.lines.append((f"GPU {index}", f"{card.name}, {size(card.total_memory)}"))
        try_device(found, f"cuda:{index}")
    if not count:
        found.lines.append(("none", "torch.cuda sees no GPU; everything runs on the processor"))
    if driver.exists() and not count:
        remedy = "update it, or install a torch that supports it"
        why = f" ({' '.join(str(said[0].message).split())})" if said else ""
        found.problem(f"there is an NVIDIA driver, but torch {torch.__version__} sees no GPU{why}: {remedy}")
    return found


def try_device(found: Findings, device: str, seconds: float = 120.0) -> None:
    """Try free memory, a matrix product, CTC and a GRU on a device; one that fails is a problem that stops a run.

    They run in a separate process, so that this one leaves the device free for client actors.
    """
    command = [sys.executable, "-m", "fedray.engine.actors.gpu_trials", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        found.problem(f"{device} did not finish a few small operations within {seconds:.0f} s: reset it", stops=True)
        return
    trials = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    found.lines += [(f"  {name}", text) for name, worked, text in trials if worked]
    failed = [f"{name}: {text}" for name, worked, text in trials if not worked]
    if done.returncode:
        failed.append(f"the process ended with status {done.returncode} ({done.stderr.strip()[-200:]})")
    for text in failed:
        remedy = "see `python -m tests.gpu` in a clone, or set engine.gpus_per_client=0"
        found.problem(f"{device} fails a trial ({text}): {remedy}", stops=True)


def versions() -> Findings:
    """Versions of fedray, Python, libraries and extras, and whether they satisfy fedray's requirements."""
    found = Findings([("fedray", fedray.__version__), ("python", platform.python_version())])
    found.lines += [(name, _version(name)) for name in ("torch", "torchaudio", "ray", "speechbrain")]
    try:
        needs = importlib.metadata.requires("fedray") or []
    except importlib.metadata.PackageNotFoundError:  # fedray runs from its source
        needs = []
    for need in needs:
        if (extra := re.search(r"""extra == ['"]([\w-]+)""", need)) and extra[1] not in ("dev", "docs"):
            name = re.split(r"[^\w.-]", need)[0]
            found.lines.append((f"extra {extra[1]}", f"{name} {_version(name)}"))
    try:
        importlib.import_module("torchaudio")
    except LOAD_ERRORS as error:
        found.problem(
            f"torchaudio does not load ({first_line(error)}): install both from the same package index: "
            "pip install --force-reinstall 'torch>=2.13' 'torchaudio==2.11.1'",
            stops=True,
        )
        return found
    try:
        importlib.import_module("fedray.experiment")  # imports everything that a run needs
        espeak = importlib.import_module("fedray.data.corpora.synthesis.espeak")
    except LOAD_ERRORS as error:
        remedy = "install it again with its dependencies (pip install fedray; in a clone: pip install .)"
        found.problem(f"fedray does not load ({first_line(error)}): {remedy}", stops=True)
        return found
    try:
        found.lines.append(("espeak-ng", espeak.version()))
    except (ValueError, OSError) as error:
        found.lines.append(("espeak-ng", "none"))
        found.problem(f"{first_line(error)} (corpora of recorded speech do not need it)")
    return found


def environment() -> Findings:
    """Environment variables that matter to runs, and whether Ray answers at RAY_ADDRESS."""
    threads, address = os.environ.get("OMP_NUM_THREADS"), os.environ.get("RAY_ADDRESS")
    found = Findings(
        [(name, os.environ.get(name) or "not set") for name in ("OMP_NUM_THREADS", "RAY_ADDRESS", "FEDRAY_CACHE")]
    )
    if threads != "1":
        state = f"is {threads}" if threads else "is not set (fedray sets it to 1 only if it starts Ray)"
        remedy = "export OMP_NUM_THREADS=1: on small models several threads per process are slower"
        found.problem(f"OMP_NUM_THREADS {state}: {remedy}")
    if address and not ray.is_initialized() and not answers(address):
        found.problem(
            f"RAY_ADDRESS is {address}, but no Ray answers there: start it (`ray start --head`), or unset RAY_ADDRESS, "
            "so that fedray starts Ray itself",
            stops=True,
        )
    return found


def answers(address: str, seconds: float = 3.0) -> bool:
    """Whether a server at host:port speaks Ray's protocol (HTTP/2). Ray itself waits 80 s, then ends the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return True  # auto, local, or an address that Ray refuses immediately
    if int(port) > 65535:
        return False  # glibc would take it modulo 65,536 and connect to whoever listens there
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds) as line:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return True
            preface, no_settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
            line.sendall(preface + no_settings)
            return line.recv(9)[3:4] == b"\x04"  # a frame with the server's settings
    except OSError:
        return False


def cache(root: Path) -> Findings:
    """Entries and sizes of the cache by kind; a cache that can be neither written nor read stops a run."""
    found = Findings([("folder", str(root))])
    with suppress(PermissionError):  # the problem below
        there = entries(root)
        for kind in KINDS:
            sizes = [entry.bytes for entry in there if entry.kind == kind]
            found.lines.append((kind, f"{len(sizes):,}, {size(sum(sizes))}"))
    try:
        with tempfile.TemporaryFile(dir=_existing(root)):
            pass
    except OSError as error:
        readable = root.is_dir() and os.access(root, os.R_OK | os.X_OK)
        but = ", so a run can use what it holds, and nothing else" if readable else ""
        remedy = "set FEDRAY_CACHE to a folder that you can write"
        found.problem(f"the cache {root} cannot be written ({error.strerror}){but}: {remedy}", stops=not readable)
    return found


def size(count: float) -> str:
    """A number of bytes as text, in MB or GB."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or else its class."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _existing(place: Path) -> Path:
    """The path, or its nearest parent that exists."""
    return next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
