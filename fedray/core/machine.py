"""The cores and the memory that this process may use: of affinity, control groups and Slurm the least counts.

`python -m fedray.core.machine` prints them as options of `ray start`, which counts all cores of a machine. Imports
nothing of fedray and no Ray, so that a batch script gets its answer at once.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CGROUPS, GROUP, MEMORY = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/meminfo")
SHM = Path("/dev/shm")
# Ray's object store takes this share of the memory, as far as it fits into the free shared memory. One of up to 10 GB
# is on disk if it does not fit. So Ray has it.
STORED, FREE, ON_DISK = 0.3, 0.95, 1e10
MEGABYTE = 1024.0**2  # Slurm's


@dataclass(frozen=True)
class Allowed:
    """The limits of a process by what sets them. Memory (bytes) counts only where it is below the machine's."""

    cores: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)

    def whole_cores(self) -> int:
        """The cores to count on, at least 1: Ray counts whole cores of a machine, so 1.5 are 1."""
        return max(1, math.floor(min(self.cores.values())))

    def least_memory(self) -> float | None:
        """Bytes; None: all that the machine has."""
        return min(self.memory.values(), default=None)


def allowed() -> Allowed:
    """The limits of this process."""
    total = meminfo("MemTotal") or math.inf
    quota, limit = container(CGROUPS, read(GROUP), total)
    cores, memory = slurm(os.environ)
    found = {"affinity": affinity(), "the control group": quota, "Slurm": cores}
    bytes_of = {"the control group": limit, "Slurm": memory}
    return Allowed(
        {name: value for name, value in found.items() if value is not None},
        {name: value for name, value in bytes_of.items() if value is not None and value < total},
    )


def affinity() -> float:
    """The cores that this process may be scheduled on."""
    return float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def container(root: Path, groups: str, most: float) -> tuple[float | None, float | None]:
    """Limits on cores and bytes from control groups (versions 1 and 2, at all levels); None without a limit.

    `root` is their file system, `groups` the contents of /proc/self/cgroup, `most` the memory of the machine: a larger
    limit does not count.
    """
    cores, memory = [], []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            base = root / controller
            group = base / path.strip("/")
            for place in (group, *group.parents):
                if place.is_relative_to(base):
                    first_version = [read(place / "cpu.cfs_quota_us"), read(place / "cpu.cfs_period_us")]
                    quota = read(place / "cpu.max").split() or first_version
                    cores += [int(quota[0]) / int(quota[1])] if all(part.isdigit() for part in quota) else []
                    limits = [read(place / name) for name in ("memory.max", "memory.limit_in_bytes")]
                    memory += [float(limit) for limit in limits if limit.isdigit() and float(limit) < most]
    return min(cores, default=None), min(memory, default=None)


def slurm(variables: Mapping[str, str]) -> tuple[float | None, float | None]:
    """The cores and bytes that Slurm gives to this process, by its variables; None: it does not say.

    A batch script, and a task that is alone on its node, have what the job has there; a task among others has its own
    share. Without `--cpus-per-task` a task may use what its step has.
    """
    here = _number(variables, "SLURM_CPUS_ON_NODE")
    task = _number(variables, "SLURM_CPUS_PER_TASK")
    tasks = variables.get("SLURM_STEP_TASKS_PER_NODE") or variables.get("SLURM_TASKS_PER_NODE") or "1"
    in_step = "SLURM_STEP_TASKS_PER_NODE" in variables
    if task is not None and (in_step or re.fullmatch(r"1(\(x\d+\))?", tasks)):
        here = task if here is None else min(here, task)
    node, each = _number(variables, "SLURM_MEM_PER_NODE"), _number(variables, "SLURM_MEM_PER_CPU")
    memory = node or (each * here if each and here else None)  # 0: all memory of the node
    return here, None if memory is None else memory * MEGABYTE


def _number(variables: Mapping[str, str], name: str) -> float | None:
    text = variables.get(name, "")
    return float(text) if text.isdecimal() else None


def for_ray() -> dict[str, int]:
    """What Ray is to count here: `num_cpus`; where memory is limited, `memory` and `object_store_memory` in bytes."""
    limits = allowed()
    found = {"num_cpus": limits.whole_cores()}
    if (limit := limits.least_memory()) is not None:
        free = min(limit, meminfo("MemAvailable") or limit)
        shared = shutil.disk_usage(SHM).free if SHM.is_dir() else 0
        stored = int(min(STORED * free, max(FREE * shared, ON_DISK)))
        found |= {"memory": int(free) - stored, "object_store_memory": stored}
    return found


def meminfo(name: str) -> float:
    """The bytes of an entry of /proc/meminfo; 0 if it is missing."""
    found = re.search(rf"^{name}:\s+(\d+) kB", read(MEMORY), re.MULTILINE)
    return 1024.0 * int(found[1]) if found else 0.0


def read(path: Path) -> str:
    """The text of a file of the kernel; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    print(*(f"--{name.replace('_', '-')}={value}" for name, value in for_ray().items()))
