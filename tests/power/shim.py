"""The Python side of shim.c, which logs all changes of a folder by any process, or lets one of them fail."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("shim.c")
LAYOUT = struct.Struct("qqqqq2032s2032s")  # struct control
CLOCK = 32  # where its clock lies


@dataclass(frozen=True)
class Call:
    """A call that changed the folder; paths are relative to it."""

    name: str
    path: str
    second: str  # where a rename or a link leads to
    offset: int
    data: bytes


class Shim:
    """A compiled shim. Processes that start with `environment` obey `watch` and `stop`, whenever these are called."""

    def __init__(self, scratch: Path) -> None:
        """Skips the test where there is no compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler (cc)")
        scratch.mkdir(parents=True, exist_ok=True)
        self.library, self.control, self.log = scratch / "shim.so", scratch / "control", scratch / "log"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self.library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.control.write_bytes(bytes(LAYOUT.size))
        with self.control.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), LAYOUT.size)

    @property
    def environment(self) -> Mapping[str, str]:
        # Ray's workers lose LD_PRELOAD unless told otherwise.
        return {
            "LD_PRELOAD": str(self.library),
            "RAY_LD_PRELOAD_ON_WORKERS": "1",
            "FEDRAY_TEST_SHIM": str(self.control),
        }

    def watch(self, folder: Path, log: bool = False, fail_at: int = 0, error: int = 0, lasting: bool = False) -> None:
        """Count the calls that change the folder from now on; log them; let one fail, or all from that one on."""
        self.log.unlink(missing_ok=True)
        names = (os.fsencode(folder), os.fsencode(self.log) if log else b"")
        LAYOUT.pack_into(self._shared, 0, 0, fail_at, error, int(lasting), 0, *names)

    def jump(self, seconds: int) -> None:
        """Put the time of day wrong by so many seconds, until `stop`."""
        struct.pack_into("q", self._shared, CLOCK, seconds)

    def stop(self) -> int:
        """Watch nothing any more; the number of calls that were counted."""
        calls = int(LAYOUT.unpack_from(self._shared)[0])
        LAYOUT.pack_into(self._shared, 0, 0, 0, 0, 0, 0, b"", b"")
        return calls

    def calls(self, folder: Path) -> Iterator[Call]:
        """The log of a folder that was watched, in order."""
        with self.log.open("rb") as file:
            while head := file.readline():
                name, offset, size, path, second = head.decode().rstrip("\n").split("\t")
                data = file.read(int(size))
                one, two = (os.path.relpath(place, folder) if place else "" for place in (path, second))
                yield Call(name, one, two, int(offset), data)
