"""Errors after which a process cannot continue: its memory or its GPU's memory is full, or its GPU is broken."""

from __future__ import annotations

import errno

import torch

NO_MEMORY = ("can't allocate memory", "DefaultCPUAllocator")
NO_GPU_MEMORY = (
    "CUDA error: out of memory",
    "ALLOC_FAILED",
    # From libraries that find no room for their own state.
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_INTERNAL_ERROR",
    "NVML_SUCCESS == r INTERNAL ASSERT",  # on a part of a GPU (MIG), where torch cannot ask how much memory is free
)
NO_GPU = ("CUDA error:", "CUDNN_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_EXECUTION_FAILED")


def exhausted(error: BaseException) -> str | None:
    """Which resource an error reports as full or broken: `memory`, `gpu memory` or `gpu`; None: another error."""
    told = str(error) if isinstance(error, RuntimeError) else ""
    if isinstance(error, torch.OutOfMemoryError) or any(words in told for words in NO_GPU_MEMORY):
        return "gpu memory"
    full = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if full or any(words in told for words in NO_MEMORY):
        return "memory"
    return "gpu" if any(words in told for words in NO_GPU) else None
