"""fedray simulates federated learning for speech on Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedray.user import settle

__version__ = "1.0.0"
__all__ = ["Result", "RunState", "Workbench", "open", "resume", "run"]

if TYPE_CHECKING:
    from fedray.experiment import Result, RunState, Workbench, open, resume, run


settle()  # before any module loads torch or numba


def __getattr__(name: str) -> Any:
    """Import `run`, `open` and so on on first use, so that the packages below `engine` need no Ray."""
    if name in __all__:
        from fedray import experiment

        return getattr(experiment, name)
    raise AttributeError(f"module 'fedray' has no attribute {name!r}")
