"""Parts of models that train fast on a CPU: the same parameters and results as torch's modules, in fewer passes.

numba compiles the loops. Import these files only when they are needed: importing numba takes half a second.

Nothing depends on this package: whoever uses a part asks `on_cpu` first, and has the same in torch or in Python
otherwise. `kernels: off` in a configuration switches all parts off.
"""

import hashlib
import os
from pathlib import Path

import torch
from torch import Tensor

from fedray.models.padding import several_clients
from fedray.storage.cache import own_root

_switched_on = True  # in this process


def switch(on: bool) -> None:
    """Switch all parts on or off in this process."""
    global _switched_on
    _switched_on = on


def switched_on() -> bool:
    """Whether this process may use the parts."""
    return _switched_on


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
    if several_clients() or not switched_on():
        return False
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
