"""What a run's bits depend on besides code, data and settings: versions of libraries, and the type of processor."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import torch

AUDIO = ("numpy", "scipy", "soundfile", "torch", "torchaudio")  # the packages that compute features
LEARNING = (*AUDIO, "faiss-cpu", "faiss-gpu", "numba", "sentencepiece", "speechbrain", "transformers")

PACKAGE = Path(__file__).parents[1]  # fedray
# The packages whose code a cached result depends on, and with the other two all bits of a run.
CACHED = ("core", "storage", "data", "models", "training")
CODE = (*CACHED, "algorithms", "engine")
SHARED = PACKAGE / "algorithms" / "base.py"  # by all algorithms


def code(packages: Iterable[str] = CODE, others: Iterable[str] = ()) -> str:
    """A hash of the code and the word lists of these packages, and of the hashes of other modules."""
    inside = (path for name in packages for path in sorted((PACKAGE / name).rglob("*")))
    digest = hashlib.blake2b(digest_size=8)
    for path in [*(path for path in inside if path.suffix in (".py", ".yaml")), SHARED]:
        digest.update(path.read_bytes())
    for other in others:
        digest.update(other.encode())
    return digest.hexdigest()


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
