"""The cores and the memory that a process may use: the least of what affinity, control groups and Slurm allow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedray.core import machine
from fedray.core.machine import Allowed, allowed, container, for_ray, slurm


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine of 64 cores and 64 GB without limits; returns the folder of its control groups."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    (tmp_path / "meminfo").write_text(f"MemTotal: {64 * 10**9 // 1024} kB\nMemAvailable: {32 * 10**9 // 1024} kB\n")
    (tmp_path / "group").write_text("0::/job\n")
    monkeypatch.setattr(machine, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "GROUP", tmp_path / "group")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "affinity", lambda: 64.0)
    monkeypatch.setattr(machine, "SHM", tmp_path / "none")
    return tmp_path / "groups"


def test_the_least_counts(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert allowed() == Allowed({"affinity": 64.0}) and for_ray() == {"num_cpus": 64}
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "8")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "16384")  # in MB of 1024 x 1024 bytes: 17.2 GB
    assert allowed().whole_cores() == 8 and allowed().least_memory() == 16384 * 2**20
    (alone / "job").mkdir(parents=True)
    (alone / "job" / "cpu.max").write_text("150000 100000")
    (alone / "job" / "memory.max").write_text("4000000000")
    assert allowed() == Allowed(
        {"affinity": 64.0, "the control group": 1.5, "Slurm": 8.0},
        {"the control group": 4e9, "Slurm": 16384 * 2**20},
    )
    # Ray counts whole cores; its store takes 30 % of the memory.
    assert for_ray() == {"num_cpus": 1, "memory": 2_800_000_000, "object_store_memory": 1_200_000_000}
    (alone / "job" / "cpu.max").write_text("50000 100000")
    assert for_ray()["num_cpus"] == 1, "half a core is one slow core"
    (alone / "job" / "memory.max").write_text("63000000000")
    monkeypatch.delenv("SLURM_MEM_PER_NODE")
    assert sum(for_ray().values()) - 1 == 32 * 10**9, "of what is allowed, only what is free"


def test_a_large_store_fits_into_shared_memory_and_a_small_one_may_be_on_disk(
    alone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 500000000 kB\n")
    monkeypatch.setattr(machine, "SHM", tmp_path)
    for megabytes, shared, stored in (
        (1000, 10**8, 3 * 2**20 * 100),
        (100_000, 10**8, 10**10),
        (100_000, 2 * 10**10, 19 * 10**9),
    ):
        monkeypatch.setenv("SLURM_MEM_PER_NODE", str(megabytes))
        usage = SimpleNamespace(free=shared)
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda path, usage=usage: usage)
        assert for_ray()["object_store_memory"] == stored
        assert sum(for_ray().values()) - 64 == megabytes * 2**20


def test_limits_of_control_groups(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert container(tmp_path, "0::/\n", 8e9) == (None, None)
    write("cpu.max", "max 100000\n")
    write("pod/cpu.max", "150000 100000\n")  # 1.5 cores for the pod ...
    write("pod/one/cpu.max", "250000 100000\n")  # ... are less than the 2.5 of its container
    write("pod/one/memory.max", "4000000000\n")
    assert container(tmp_path, "0::/pod/one\n", 8e9) == (1.5, 4e9)
    assert container(tmp_path, "0::/pod/one\n", 3e9) == (1.5, None)  # the limit is above the machine's memory
    write("cpu/cpu.cfs_quota_us", "50000\n")  # cgroups v1; a container sees its group as the root
    write("cpu/cpu.cfs_period_us", "100000\n")
    write("memory/memory.limit_in_bytes", "2000000000\n")
    assert container(tmp_path, "5:cpu,cpuacct:/not/seen\n4:memory:/not/seen\n", 8e9) == (0.5, 2e9)
    write("cpu/cpu.cfs_quota_us", "-1\n")
    assert container(tmp_path, "5:cpu,cpuacct:/\n", 8e9) == (None, None)


def test_slurm() -> None:
    """An allocation of 8 cores and 2 GB for each, as seen by its batch script and by the tasks of its steps."""
    batch = {"SLURM_CPUS_ON_NODE": "8", "SLURM_TASKS_PER_NODE": "1", "SLURM_MEM_PER_CPU": "2048"}
    assert slurm({}) == (None, None)
    assert slurm(batch) == (8.0, 16 * 2**30)
    assert slurm(batch | {"SLURM_CPUS_PER_TASK": "8"}) == (8.0, 16 * 2**30)
    # Two threads a core: the node's whole cores were given, but a task was to have 4 of the threads.
    assert slurm(batch | {"SLURM_CPUS_PER_TASK": "4", "SLURM_TASKS_PER_NODE": "1(x3)"})[0] == 4.0
    several = batch | {"SLURM_TASKS_PER_NODE": "4", "SLURM_CPUS_PER_TASK": "2"}
    assert slurm(several)[0] == 8.0, "the script is none of the four tasks"
    assert slurm(several | {"SLURM_STEP_TASKS_PER_NODE": "4"})[0] == 2.0
    assert slurm({"SLURM_CPUS_PER_TASK": "3"}) == (3.0, None)  # in a shell of salloc
    assert slurm({"SLURM_MEM_PER_NODE": "512"}) == (None, 512 * 2**20)
    assert slurm({"SLURM_MEM_PER_NODE": "0", "SLURM_CPUS_ON_NODE": "x"}) == (None, None)  # all memory of the node


def test_what_a_process_may_use_is_printed_for_ray_start() -> None:
    one = f"os.sched_setaffinity(0, [{min(os.sched_getaffinity(0))}])"
    code = f"import os, runpy; {one}; runpy.run_module('fedray.core.machine', run_name='__main__')"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split()[0] == "--num-cpus=1"
