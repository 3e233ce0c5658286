"""The parts of models that train fast on a CPU: the same parameters and results as their modules, in fewer passes.

Its loops are compiled by numba. Import its files when they are needed: numba takes half a second.
"""

import hashlib
import os
from pathlib import Path

import torch
from torch import Tensor

from fedray.models.padding import several_clients
from fedray.storage.cache import cache_root


def loops_folder() -> Path:
    """Where compiled loops are kept: in $NUMBA_CACHE_DIR or fedray's cache.

    numba compiles a loop again when its file has changed, and does not see a change of what the loop calls: the folder
    is named by all files here.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in sources), digest_size=8).hexdigest()
    return Path(os.environ.get("NUMBA_CACHE_DIR") or cache_root() / "kernels") / digest


def on_cpu(x: Tensor) -> bool:
    """Whether these parts can take such a tensor."""
    if several_clients():
        return False
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
