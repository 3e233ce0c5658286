"""What a run's bits depend on besides code, data and settings: versions of libraries, and the type of processor."""

from __future__ import annotations

import functools
import platform
from importlib import metadata
from pathlib import Path

import torch

AUDIO = ("numpy", "scipy", "soundfile", "torch", "torchaudio")  # the packages that compute features
LEARNING = (*AUDIO, "faiss-cpu", "faiss-gpu", "numba", "sentencepiece", "speechbrain", "transformers")


@functools.cache
def versions(names: tuple[str, ...]) -> dict[str, str]:
    """Package -> version, for the packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def python() -> str:
    """Python's major and minor version: a release that only fixes bugs changes no bit."""
    return ".".join(platform.python_version_tuple()[:2])


@functools.cache
def processor() -> str:
    """The type of CPU and the instruction set that torch uses on it: libraries choose their loops by both."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.processor() or platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
