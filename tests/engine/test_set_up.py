"""A client process sets itself up to keep the memory that it frees."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource
import torch
from fedray.engine.actors import gpu

gpu.set_up(0)
for step in range(8):
    if step == 3:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [torch.ones(1 << 18) for _ in range(40)]  # 40 activations of 1 MB
    del kept
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

HOLES = """
import sys
import torch
from fedray.engine.actors import gpu


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


gpu.set_up(0)
gpu.keep_activations(large=sys.argv[1] == "large")
before = resident()
kept = [torch.ones(2 << 20) for _ in range(40)]  # 40 activations of 8 MB
del kept[::2]
print(resident() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no mallopt")
@pytest.mark.parametrize(("model", "kept"), [("large", 170e6), ("small", 350e6)])
def test_a_large_model_gives_its_activations_back(model: str, kept: float) -> None:
    done = subprocess.run([sys.executable, "-c", HOLES, model], capture_output=True, text=True, check=True)
    assert kept - 20e6 < int(done.stdout) < kept + 20e6


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no mallopt")
def test_steps_take_no_memory_from_the_system_again() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2000  # 51,200 pages were written
