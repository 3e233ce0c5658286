"""Parts of models that train fast on a CPU: the same parameters and results as torch's modules, in fewer passes.

numba compiles the loops. Import these files only when they are needed: importing numba takes half a second.
"""

import hashlib
import os
from pathlib import Path

import torch
from torch import Tensor

from fedray.models.padding import several_clients
from fedray.storage.cache import own_root


def loops_folder() -> Path:
    """The folder of compiled loops, in $NUMBA_CACHE_DIR or fedray's cache.

    numba recompiles a loop if its file has changed, but not if only a function that it calls has: so the folder's name
    is a hash of all files here.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in sources), digest_size=8).hexdigest()
    return Path(os.environ.get("NUMBA_CACHE_DIR") or own_root() / "kernels") / digest


def on_cpu(x: Tensor) -> bool:
    """Whether these parts can process the tensor."""
    if several_clients():
        return False
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
