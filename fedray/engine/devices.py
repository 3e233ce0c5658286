"""How a process that trains clients sets up torch, and takes its share of a GPU."""

from __future__ import annotations

import ctypes
import os
import sys

import torch


def set_up(gpus: float) -> None:
    """One thread, and the same bits every time, as far as the device allows. `gpus`: of this process."""
    torch.set_num_threads(1)  # two threads a process are slower on small models, and give other bits
    # On a GPU some backward passes (CTC) have no deterministic kernel.
    torch.use_deterministic_algorithms(True, warn_only=gpus > 0)
    # A debugging aid that writes every new tensor twice.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let glibc keep up to 128 MB that a step has freed, where the process runs on glibc.

    By default the step's activations go back to the system after each step, and the next one takes them page by page:
    a sixth of the CPU time of FedSTAR's network.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        trim_threshold, mmap_threshold = -1, -3  # of malloc.h
        libc.mallopt(mmap_threshold, 32 << 20)  # as large as glibc allows
        libc.mallopt(trim_threshold, 128 << 20)


def take(gpus: float) -> str:
    """Take this share of the GPU's memory, before anything is computed there; returns the name of the device."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.cuda.set_per_process_memory_fraction(min(1.0, gpus))
    return "cuda"
