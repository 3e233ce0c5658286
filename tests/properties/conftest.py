"""Property tests draw the same examples in every run, and have no time limit, since a machine may be busy."""

from __future__ import annotations

import sys

import pytest
from hypothesis import HealthCheck, settings
from speechbrain.utils.importutils import LazyModule

settings.register_profile(
    "fedray",
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("fedray")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems() -> None:
    keep_lazy()


@pytest.fixture(autouse=True)
def lazy_modules() -> None:
    keep_lazy()


def keep_lazy() -> None:
    """Keep speechbrain's lazy modules from importing missing packages when hypothesis asks each for its file."""
    for module in list(sys.modules.values()):
        if isinstance(module, LazyModule):
            module.__dict__.setdefault("__file__", None)
