"""How a process that trains clients sets up torch, and takes its share of a GPU."""

from __future__ import annotations

import ctypes
import os
import sys

import torch

CONTEXT_BYTES = 0.6e9  # of a GPU, for CUDA's context and libraries of one process, about


def set_up(gpus: float) -> None:
    """One thread, and the same bits every time, as far as the device allows. `gpus`: of this process."""
    torch.set_num_threads(1)  # two threads a process are slower on small models, and give other bits
    deterministic(gpus > 0)
    _keep_freed_memory()


def deterministic(gpu: bool) -> None:
    """The same bits every time, as far as the device allows."""
    # On a GPU some backward passes (CTC, reflection padding) have no deterministic kernel.
    torch.use_deterministic_algorithms(True, warn_only=gpu)
    # A debugging aid that writes every new tensor twice.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if gpu:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Fused attention adds in no fixed order where `warn_only` is set, and its backward pass fails under vmap: the
        # forward pass there keeps no log-sum-exp.
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)


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
    context = CONTEXT_BYTES / torch.cuda.get_device_properties(0).total_memory  # it lies outside torch's share
    torch.cuda.set_per_process_memory_fraction(max(gpus / 2, gpus - context))
    return "cuda"
