"""Fixtures of all tests: each process of the test session has its own Ray and its own cache."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.stores import s3

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Ray's agents watch their raylet through a pipe. If they watched it in /proc, one failed read would end the agent, its
# raylet and pytest.
os.environ.setdefault("RAY_enable_pipe_based_agent_to_parent_health_check", "1")
# Actors of low priority starve next to the other test processes, and whatever waits for them keeps polling.
os.environ.setdefault("RAY_worker_niceness", "0")
# Numba takes 20 s to compile librosa. All test processes, of this and later sessions, share the compiled code.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"fedray-tests-numba-{os.getuid()}"))
# A shell makes background processes ignore SIGINT, and the processes that tests start and interrupt inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The slowest files, which run first: a process that gets one of them at the end keeps the others waiting.
LONGEST = (
    *("sweep/test_sweeps", "cli/test_cli", "engine/test_gcs", "engine/test_engine", "engine/test_deaths"),
    *("engine/test_nodes", "test_package", "experiment/", "engine/", "power/", "docs/", "cli/", "runs/"),
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((at for at, part in enumerate(LONGEST) if part in item.nodeid), len(LONGEST)))


@contextmanager
def restored() -> Iterator[None]:
    """Undo on exit what is registered in the meantime, as users register algorithms and strategies."""
    from fedray.algorithms import ALGORITHMS
    from fedray.core.strategies import STRATEGIES

    before = [(registry, dict(registry)) for registry in (ALGORITHMS, STRATEGIES)]
    yield
    for registry, kept in before:
        registry.clear()
        registry.update(kept)


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    with restored():
        yield


@pytest.fixture(autouse=True, scope="module")
def registries_of_a_module() -> Iterator[None]:
    """The same for a module, since runs of its fixtures register too."""
    with restored():
        yield


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw figures, but leave SVG and PNG empty: rendering takes most of the time of a report."""
    from matplotlib.figure import Figure as Canvas

    from fedray.report.canvas import Drawing

    def empty(canvas: Canvas) -> Drawing:
        return Drawing(
            " ".join(canvas.get_suptitle().split("\n")) or canvas.axes[0].get_title("left"), "<svg></svg>", b"\x89PNG"
        )

    monkeypatch.setattr(Drawing, "of", staticmethod(empty))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("FEDRAY_CACHE")
    os.environ["FEDRAY_CACHE"] = str(folder)
    yield folder
    os.environ.pop("FEDRAY_CACHE")
    if before is not None:
        os.environ["FEDRAY_CACHE"] = before


@pytest.fixture(scope="module")
def no_ray(cache: Path) -> Iterator[None]:
    """Do parallel work in this process."""
    from fedray.core.parallel import serial
    from fedray.engine.driver import session

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "parallel", serial)
        yield


@pytest.fixture(scope="module")
def workbench(cache: Path) -> Iterator[None]:
    """For tests that use `fedray.open`: it has torch use deterministic kernels, which other tests choose themselves."""
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Callable[[], str]]:
    """A function that returns the URI of a new, empty folder on an S3 server."""
    with s3() as new:
        yield new


@pytest.fixture(scope="session")
def cluster(cache: Path) -> Iterator[None]:
    import ray

    from fedray.engine.driver import session
    from tests.engine import toys

    session.ship(toys)
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def in_process(cluster: None, no_ray: None) -> Iterator[Callable[..., Any]]:
    """Play runs, and do the work before them, without processes of Ray: see `engine.in_process`."""
    from fedray.engine.driver import session
    from tests.engine import in_process

    on_ray = session.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "beside", lambda function: None)
        patch.setattr(session, "run", in_process.run)
        yield on_ray


@pytest.fixture
def on_ray(in_process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Play a test's runs on Ray actors, in a module whose other runs are in this process."""
    from fedray.engine.driver import session

    monkeypatch.setattr(session, "run", in_process)
