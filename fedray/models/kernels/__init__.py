"""The parts of models that train fast on a CPU: the same parameters and results as their modules, in fewer passes.

Its loops are compiled by numba. Import its files when they are needed: numba takes half a second.
"""

import torch
from torch import Tensor

from fedray.models.padding import several_clients


def on_cpu(x: Tensor) -> bool:
    """Whether these parts can take such a tensor."""
    if several_clients():
        return False
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
