"""Freed memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from pathlib import Path
from fedray.core import malloc

def private():
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

malloc.tune(mapped=4 << 20, kept=32 << 20)
before = private()
for _ in range(3):  # glibc alone would keep the second, with a small block behind it
    long, short = bytearray(10 << 20), bytearray(1 << 10)
    del long
print(private() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_long_arrays_are_not_kept() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 5 << 20
