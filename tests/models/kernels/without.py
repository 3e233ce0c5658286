"""Models without compiled loops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedray.models import kernels


@contextmanager
def switched_off() -> Iterator[None]:
    """While open, this process uses no compiled loops."""
    kernels.switch(False)
    try:
        yield
    finally:
        kernels.switch(True)


def removed(patch: pytest.MonkeyPatch) -> None:
    """Make it an error to import a file of `fedray.models.kernels`."""
    for path in Path(kernels.__file__).parent.glob("[!_]*.py"):
        patch.delattr(kernels, path.stem, raising=False)
        patch.setitem(sys.modules, f"{kernels.__name__}.{path.stem}", None)  # type: ignore[arg-type]
