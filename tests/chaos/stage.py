"""The surroundings of a disturbed run: a shim under its processes, and a bucket behind a line that can be cut."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.power.shim import Shim
from tests.stores import CREDENTIALS


class Line:
    """A TCP relay from `port` to another port of this machine. While it is cut, nothing gets through."""

    def __init__(self, to: int) -> None:
        self._to, self.whole, self._sockets = to, True, set[socket.socket]()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, seconds: float) -> None:
        """Cut the line, and mend it after some seconds."""
        self.whole = False
        for one in list(self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        threading.Timer(seconds, self._mend).start()

    def _mend(self) -> None:
        self.whole = True

    def _accept(self) -> None:
        while True:
            caller, _ = self._server.accept()
            if not self.whole:
                caller.close()
                continue
            try:
                called = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                caller.close()
                continue
            self._sockets |= {caller, called}
            for one, other in ((caller, called), (called, caller)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._sockets.discard(end)


@dataclass
class Stage:
    """Starts runs. `line` leads to the bucket that some of them write to."""

    scratch: Path
    shim: Shim
    line: Line

    def start(self, folder: Path, options: dict[str, Any], log: Path) -> subprocess.Popen[bytes]:
        """Start a run under the shim, in its own process group."""
        command = [sys.executable, "-m", "tests.engine.cluster_run", str(folder), json.dumps(options)]
        environment = {**os.environ, **self.shim.environment, "RAY_memory_monitor_refresh_ms": "0"}
        environment |= {"AWS_MAX_ATTEMPTS": "1"}
        with log.open("ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env=environment)

    def bucket(self, name: str) -> str:
        """The URI of a folder in the bucket, reached over the line."""
        return f"s3://bucket/{name}?region=us-east-1&endpoint_override=127.0.0.1:{self.line.port}&scheme=http"


@contextmanager
def stage(scratch: Path) -> Iterator[Stage]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + 60
            while True:
                with suppress(OSError):
                    request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
                    urllib.request.urlopen(request).close()
                    break
                assert time.monotonic() < until, "no S3 server"
                time.sleep(0.2)
            with mock.patch.dict(os.environ, CREDENTIALS):
                yield Stage(scratch, Shim(scratch / "shim"), Line(port))
        finally:
            server.kill()
