"""The nodes of a run, compared when their client actors start: packages, code, processor, GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import torch

import fedray
from fedray.core import environment
from fedray.core.types import RunError

UNSURE = "a repetition may have other bits, since the nodes differ"
NVIDIA = Path("/proc/driver/nvidia/version")  # the kernel's driver of GPUs
RENEWED = ("fedray", "ray")  # versions that may have changed when a run is resumed
HARDWARE = {"processor": "processors", "gpu": "GPUs"}


@dataclass(frozen=True)
class Setup:
    """What the results of a node's processes depend on besides code that is sent, settings and data."""

    address: str
    software: Mapping[str, str]  # versions of Python, Ray and packages, and a hash of fedray's code
    processor: str
    gpu: str  # its type, CUDA and driver; "": the actors compute on the CPU

    @classmethod
    def here(cls, gpu: bool) -> Setup:
        software = {"fedray": fedray.__version__, "ray": ray.__version__, "python": environment.python()}
        software |= environment.versions(environment.LEARNING) | {"code": environment.code()}
        return cls(ray.util.get_node_ip_address(), software, environment.processor(), _gpu() if gpu else "")


class Nodes:
    """The nodes that client actors have started on, in this process and, if it was resumed, before.

    `here`: the driver's node, with which they are compared. `described`: run.json, whose versions come first: it may be
    of another process, and is complete only if this fedray wrote it. `allowed`: `engine.mixed_nodes`. `warn` is told of
    differences that are allowed. RunError: the driver's node is not what run.json says.
    """

    def __init__(self, described: Mapping[str, Any], here: Setup, allowed: str, warn: Callable[[str], None]) -> None:
        told = {name: described[name] for name in here.software if name in described and name not in RENEWED}
        self.wanted = {**here.software, **told}
        self.allowed, self._warn, self._here = allowed, warn, here
        self.found: list[dict[str, Any]] = list(described.get("nodes", []))
        self.mixed: list[str] = list(described.get("mixed", []))
        self.check(here)

    def add(self, setup: Setup, beside: bool = False) -> bool:
        """Whether run.json needs a new entry for a node. RunError: it differs in what may not differ.

        `beside`: actors also work on the driver's node, which is not listed if it was the only one when they started.
        """
        other = self.check(setup)
        entry: dict[str, Any] = {"address": setup.address, "processor": setup.processor}
        entry |= ({"gpu": setup.gpu} if setup.gpu else {}) | ({"differs": other} if other else {})
        if entry in self.found:
            return False
        self.found.append(entry)
        before, self.mixed = self.mixed, [line for name in HARDWARE if (line := self._kinds(name, beside))]
        if self.mixed and self.allowed == "none":
            raise RunError(
                f"the nodes have different {'; '.join(self.mixed)}: start the run on nodes of one type, or set "
                "engine.mixed_nodes=hardware, with which a repetition may have other bits"
            )
        self.mixed += [f"{one['address']}: {', '.join(one['differs'])}" for one in self.found if "differs" in one]
        if self.mixed != before:
            self._warn(f"{UNSURE}: different {'; '.join(self.mixed)}")
        return True

    def record(self) -> dict[str, Any]:
        """The entries of run.json."""
        told: dict[str, Any] = {"nodes": self.found}
        return told | ({"mixed": self.mixed, "deterministic": UNSURE} if self.mixed else {})

    def check(self, setup: Setup) -> list[str]:
        """What a node has in another version than the run was started with. RunError: that is not allowed."""
        other = self._other(setup.software)
        if other and self.allowed != "all":
            raise RunError(
                f"node {setup.address} has {', '.join(other)}, and the run would not have the same bits: install there "
                "what the run was started with, or set engine.mixed_nodes=all"
            )
        return other

    def _other(self, software: Mapping[str, str]) -> list[str]:
        differences = []
        for name in {**self.wanted, **software}:
            here, there = self.wanted.get(name), software.get(name)
            if here == there:
                continue
            if name == "code":
                differences.append("other code of fedray")
            else:
                differences.append(f"{name} {there or 'not installed'} instead of {here or 'none'}")
        return differences

    def _kinds(self, name: str, beside: bool) -> str:
        """The kinds of processor or GPU, each with its nodes; "": all nodes have the same."""
        kinds: dict[str, list[str]] = {}
        if beside and name == "processor":
            kinds[self._here.processor] = [self._here.address]
        for entry in self.found:
            kinds.setdefault(entry.get(name, "no GPU"), []).append(entry["address"])
        if len(kinds) < 2:
            return ""
        told = (f"{kind} ({', '.join(dict.fromkeys(where))})" for kind, where in kinds.items())
        return f"{HARDWARE[name]}: {', '.join(told)}"


def _gpu() -> str:
    told = NVIDIA.read_text(encoding="utf-8") if NVIDIA.exists() else ""
    version = re.search(r"Module.*?(\d+\.[\d.]+)", told)
    driver = f", driver {version.group(1)}" if version else ""
    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}{driver}"
