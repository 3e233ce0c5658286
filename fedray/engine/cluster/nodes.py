"""Small services on any node of the cluster: read a file there, kill a process there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

SECONDS = 30.0  # for a node to answer


def read_on(node: str, path: Path) -> str | None:
    """The text of a file on a node of the cluster; None if the node or the file is gone."""
    if _is_here(node):
        return _read(path) if path.is_file() else None
    try:
        return str(ray.get(_on(node, _read, path), timeout=SECONDS))
    except (RayError, OSError):
        return None


def kill_on(node: str, pid: int) -> None:
    """Kill a Ray process on a node, even a suspended one. Does not wait for another node, which may hang too."""
    if _is_here(node):
        _kill(pid)
    else:
        _on(node, _kill, pid)


def alive() -> set[str]:
    """The nodes of the cluster that are alive."""
    return {str(node["NodeID"]) for node in ray.nodes() if node["Alive"]}


def is_alive(node: str) -> bool:
    """Whether a node of the cluster is alive."""
    return node in alive()


def oom_kills() -> int:
    """How many processes this machine's kernel has killed for memory since it started; 0 if it does not say."""
    return kills_in(_read(Path("/proc/vmstat"))) if Path("/proc/vmstat").is_file() else 0


def kills_in(vmstat: str) -> int:
    """How many processes a kernel has killed for memory, from the text of its /proc/vmstat."""
    return next((int(line.split()[1]) for line in vmstat.splitlines() if line.startswith("oom_kill ")), 0)


def on_this_node() -> NodeAffinitySchedulingStrategy:
    """The scheduling strategy by which Ray starts an actor or a task on the node of this process."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def _is_here(node: str) -> bool:
    return node == str(ray.get_runtime_context().get_node_id())


def _on(node: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """A reference to the result of a function that runs on a node."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(function).remote(*arguments)


def _read(path: Path) -> str:
    # The bytes after a marker's end may begin in the middle of a character.
    return path.read_text(encoding="utf-8", errors="replace")


def _kill(pid: int) -> None:
    """Kill a process if it is still Ray's: its id may belong to another process by now."""
    with suppress(FileNotFoundError, ProcessLookupError):
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)
