"""Ray's memory monitor really ends an actor.

`python -m tests.engine.test_memory FOLDER` plays the run, on its own Ray.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
from ray._private.utils import get_system_memory, get_used_memory

from fedray.core.types import Client, Received
from fedray.engine.driver import session
from tests.engine import toys
from tests.engine.runs import same

LEAST = 8e9  # bytes that must be free: Ray watches the whole machine, and no other process may be what exhausts it


class Hungry(toys.Toy):
    """A troubled client takes memory until its actor is ended for it, once."""

    def make_trouble(self, client: Client, received: Received) -> None:
        fed = Path(self.settings.folder) / "fed"
        if not fed.exists():
            fed.touch()
            taken = []
            while psutil.virtual_memory().available > LEAST / 4:
                taken.append(np.ones(int(1e8) // 8))
                time.sleep(0.01)
            time.sleep(60)
            raise AssertionError("nobody ended the actor")


@pytest.mark.nightly
def test_an_evicted_actor_is_replaced_and_changes_no_bit(cluster: None, tmp_path: Path) -> None:
    if psutil.virtual_memory().available < LEAST:
        pytest.skip("needs 8 GB of free memory")
    toys.play(tmp_path / "straight", rounds=2, cohort=12)
    command = [sys.executable, "-m", "tests.engine.test_memory", str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    said = re.sub(r"\d[\d.]*GB", "_GB", done.stderr)
    assert (
        "a client actor died and is being replaced (9 more allowed): Ray's memory monitor ended it, since its "
        "node ran low on memory (_GB" in said
    )
    assert re.search(r"an actor died while it trained client client-05; lane \d is trained again", said)
    same(tmp_path / "run", tmp_path / "straight", 2)


def main(folder: Path) -> None:
    threshold = f"{(get_used_memory() + psutil.virtual_memory().available * 0.35) / get_system_memory():.4f}"
    os.environ.update(RAY_memory_usage_threshold=threshold, RAY_memory_monitor_refresh_ms="100")
    session.ship(toys)
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    toys.run(
        folder / "run",
        rounds=2,
        actors=2,
        cohort=12,
        algorithm=Hungry,
        settings=toys.ToySettings(troubled=("client-05",), folder=str(folder)),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
