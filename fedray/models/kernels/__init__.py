"""The parts of models that train fast on a CPU: the same parameters and results as their modules, in fewer passes."""

from fedray.models.kernels.conformer import encode, front

__all__ = ["encode", "front"]
