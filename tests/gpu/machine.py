"""A description of the machine that is checked, made without opening the device in this process."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime

PACKAGES = (
    "torch",
    "torchaudio",
    "triton",
    "speechbrain",
    "transformers",
    "numpy",
    "scipy",
    "faiss-cpu",
    "faiss-gpu",
    "ray",
)
SMI = "name,driver_version,memory.total,memory.used,compute_mode,mig.mode.current,power.limit,clocks.max.sm"
CUDA = "import torch; print(torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.get_arch_list())"


def described() -> dict[str, str]:
    """The machine's description: name -> text."""
    cores = len(os.sched_getaffinity(0))
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "system": f"{platform.platform()}, {cores} of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
    }
    found |= {name: version for name in PACKAGES if (version := _version(name))}
    found["CUDA, cuDNN, architectures of torch"] = _said([sys.executable, "-c", CUDA])
    if shutil.which("nvidia-smi"):
        found[SMI.replace(",", ", ")] = _said(["nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader"])
    else:
        found["nvidia-smi"] = "not there"
    found["nvidia-cuda-mps-control"] = shutil.which("nvidia-cuda-mps-control") or "not there"
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return " ".join((done.stdout or done.stderr).split())[:500]
