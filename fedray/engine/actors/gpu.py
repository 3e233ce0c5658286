"""How a process that trains clients sets up torch, and takes its share of a GPU."""

from __future__ import annotations

import os

import torch

from fedray.core import malloc

CONTEXT_BYTES = 0.6e9  # of GPU memory, about, for the CUDA context and libraries of one process


def set_up(gpus: float) -> None:
    """Give torch one thread, and the same bits every time as far as the device allows. `gpus`: of this process."""
    torch.set_num_threads(1)  # two threads per process are slower on small models, and give different bits
    deterministic(gpus > 0)
    keep_activations()


def keep_activations(large: bool = False) -> None:
    """Keep the memory of a step's activations for the next step. `large`: those of a large model.

    By default glibc gives it back, and gets it again page by page, which takes a sixth of the CPU time of FedSTAR's
    network. What a large model's step keeps has holes, since batches differ in length: its activations of 4 MB and more
    go back, which saves a tenth of the memory of an encoder of 95M parameters.
    """
    malloc.tune(mapped=(4 if large else 32) << 20, kept=128 << 20)  # 32 MB are the most that glibc allows


def deterministic(gpu: bool) -> None:
    """Make torch give the same bits every time, as far as the device allows."""
    # On a GPU some backward passes (CTC, reflection padding) have no deterministic kernel.
    torch.use_deterministic_algorithms(True, warn_only=gpu)
    # A debugging aid that writes every new tensor twice.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if gpu:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # With `warn_only`, fused attention adds in no fixed order. Its backward pass fails under vmap, where the
        # forward pass keeps no log-sum-exp.
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)


def take(gpus: float) -> str:
    """Limit this process to its share of the GPU's memory, before it computes there; returns the device's name."""
    context = CONTEXT_BYTES / torch.cuda.get_device_properties(0).total_memory  # outside torch's share
    torch.cuda.set_per_process_memory_fraction(max(gpus / 2, gpus - context))
    return "cuda"
