"""The Python side of shim.c, which logs all changes to a folder by any process, or makes one of them fail."""

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
CLOCK = 32  # the offset of its clock


@dataclass(frozen=True)
class Call:
    """A call that changed the folder; paths are relative to it."""

    name: str
    path: str
    second: str  # the target of a rename or a link
    offset: int
    data: bytes


class Shim:
    """A compiled shim. Processes started with `environment` obey `watch`, `jump` and `stop` at any time."""

    def __init__(self, scratch: Path) -> None:
        """Compile the shim. Skip the test if there is no C compiler."""
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
        """Count the calls that change `folder` from now on, log them if asked, and make one fail, or all from it on."""
        self.log.unlink(missing_ok=True)
        names = (os.fsencode(folder), os.fsencode(self.log) if log else b"")
        LAYOUT.pack_into(self._shared, 0, 0, fail_at, error, int(lasting), 0, *names)

    def jump(self, seconds: int) -> None:
        """Shift the time of day by so many seconds, until `stop`."""
        struct.pack_into("q", self._shared, CLOCK, seconds)

    def stop(self) -> int:
        """Stop watching. Return the number of calls that were counted."""
        calls = int(LAYOUT.unpack_from(self._shared)[0])
        LAYOUT.pack_into(self._shared, 0, 0, 0, 0, 0, 0, b"", b"")
        return calls

    def calls(self, folder: Path) -> Iterator[Call]:
        """The logged calls that changed a watched folder, in order."""
        with self.log.open("rb") as file:
            while head := file.readline():
                name, offset, size, path, second = head.decode().rstrip("\n").split("\t")
                data = file.read(int(size))
                one, two = (os.path.relpath(place, folder) if place else "" for place in (path, second))
                yield Call(name, one, two, int(offset), data)
