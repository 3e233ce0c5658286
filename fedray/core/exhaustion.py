"""Errors after which a process cannot go on: its memory is full, or its GPU is broken."""

from __future__ import annotations

import errno

import torch

NO_MEMORY = ("can't allocate memory", "DefaultCPUAllocator", "CUDA error: out of memory", "ALLOC_FAILED")
NO_GPU = ("CUDA error:", "CUDNN_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_EXECUTION_FAILED")


def exhausted(error: BaseException) -> str | None:
    """`memory` or `gpu`, if that is what an error says."""
    told = str(error) if isinstance(error, RuntimeError) else ""
    full = isinstance(error, MemoryError | torch.OutOfMemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if full or any(words in told for words in NO_MEMORY):
        return "memory"
    return "gpu" if any(words in told for words in NO_GPU) else None
