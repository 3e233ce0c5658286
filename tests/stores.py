"""Stores for tests: an S3 server (moto) that keeps files in memory, and a disk small enough to fill."""

from __future__ import annotations

import logging
import os
import subprocess
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3() -> Iterator[Callable[[], str]]:
    """Start a server on a free port. Each call of the result gives the URI of a new, empty folder on the server."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # no line for each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        host, port = server.get_host_and_port()
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT")).close()
        try:
            yield lambda: f"s3://bucket/{uuid.uuid4().hex}?region=us-east-1&endpoint_override={host}:{port}&scheme=http"
        finally:
            server.stop()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of `size` at `folder`. Skip the test if it cannot be mounted."""
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(
            ["umount", "-l", str(folder)], check=True
        )  # a process of Ray that is about to end may still have a file open
