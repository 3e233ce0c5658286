"""The checks of `fedray doctor` name each problem."""

from __future__ import annotations

import re
import socket
import sys
import threading
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import torch

from fedray.core.machine import Allowed
from fedray.doctor import checks
from fedray.doctor.checks import Findings

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def only(found: Findings) -> tuple[str, bool]:
    (problem,) = found.problems
    return problem.text, problem.stops


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert not checks.environment().problems
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert only(checks.environment())[0].startswith("OMP_NUM_THREADS is 4: export OMP_NUM_THREADS=1")
    monkeypatch.delenv("OMP_NUM_THREADS")
    text, stops = only(checks.environment())
    assert text.startswith("OMP_NUM_THREADS is not set") and "export OMP_NUM_THREADS=1" in text and not stops


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_address_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, listening: socket.socket) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        text, stops = only(checks.environment())
        assert text.startswith(f"RAY_ADDRESS is {address}, but no Ray answers there: start it") and stops
    assert not checks.answers(f"127.0.0.1:{listening.getsockname()[1]}", seconds=0.2)  # accepts, but sends nothing
    assert checks.answers("auto") and checks.answers("local")


def test_something_else_at_the_address(listening: socket.socket) -> None:
    def serve() -> None:
        listening.settimeout(60)
        with listening.accept()[0] as line:
            line.recv(100)
            line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = threading.Thread(target=serve)
    server.start()
    assert not checks.answers(f"127.0.0.1:{listening.getsockname()[1]}")
    server.join(60)


def test_the_port_of_ray_answers(cluster: None) -> None:
    address = ray.get_runtime_context().gcs_address
    assert checks.answers(address)
    host, port = address.rsplit(":", 1)
    assert not checks.answers(f"{host}:{int(port) + 65536}")  # glibc takes ports modulo 65,536


KEY = "0123456789abcdef0123"  # the key of a cache entry


def test_the_cache_is_counted(tmp_path: Path) -> None:
    """Two corpora of 1.5 MB in all and a theta_0 of 0.2 MB are counted; locks and half-built folders are not."""
    for name, length in (
        (f"corpora/embedded-a-{KEY}/x.wav", 1_000_000),
        (f"corpora/embedded-b-{KEY}/deep/y.wav", 500_000),
        (f"init/{KEY}.pt", 200_000),
        (f"features/features-{KEY}.tmp/z", 9),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(length))
    (tmp_path / f"corpora/embedded-a-{KEY}.lock").touch()
    found = checks.cache(tmp_path)
    assert found.lines[1:] == [
        ("corpora", "2, 1.5 MB"),
        ("features", "0, 0.0 MB"),
        ("init", "1, 0.2 MB"),
        ("prepared", "0, 0.0 MB"),
    ]
    assert not found.problems and not checks.cache(tmp_path / "not" / "yet").problems


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text, stops = only(checks.cache(tmp_path / "file"))
    assert text.startswith(f"the cache {tmp_path / 'file'} cannot be written") and "set FEDRAY_CACHE" in text and stops
    text, stops = only(checks.cache(tmp_path / "file" / "cache"))
    assert stops


def test_a_cache_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr(checks.tempfile, "TemporaryFile", refused)
    text, stops = only(checks.cache(tmp_path))
    assert "cannot be written (Permission denied), so a run can use what it holds, and nothing else: set FED" in text
    assert not stops


def test_little_room(tmp_path: Path) -> None:
    found = Findings()
    checks.disk(found, "disk", tmp_path / "not" / "yet", "go away", least=float("inf"))
    assert re.fullmatch(r".*yet has [\d.,]+ [GM]B of disk left: make room, or go away", only(found)[0])
    found = Findings()
    checks.shared_memory(found, tmp_path, least=float("inf"))
    text, stops = only(found)
    assert (
        re.match(rf"{tmp_path} has [\d.,]+ [GM]B free: Ray's object store will be on disk.*--shm-size", text)
        and not stops
    )
    found = Findings()
    checks.shared_memory(found, tmp_path / "none")
    assert only(found)[0].startswith(f"there is no {tmp_path / 'none'}: Ray's object store will be on disk")


def test_packages_that_do_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "espeakng_loader", None)
        text, stops = only(checks.versions())
        assert 'pip install "fedray[synth]"' in text and not stops
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fedray.experiment", None)
        text, stops = only(checks.versions())
        assert text.startswith("fedray does not load (") and stops
    monkeypatch.setitem(sys.modules, "torchaudio", None)
    text, stops = only(checks.versions())
    assert text.startswith("torchaudio does not load (") and stops
    pair = re.findall(r"'([^']+)'", text.partition("pip install")[2])
    assert pair and set(pair) <= set(PROJECT["dependencies"])


def test_a_gpu_that_torch_does_not_see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unavailable() -> bool:
        warnings.warn("the driver is too old\n(found version 11020)", stacklevel=2)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", unavailable)
    assert not checks.gpus(tmp_path / "no driver").problems
    (tmp_path / "driver").touch()
    text, _ = only(checks.gpus(tmp_path / "driver"))
    assert "sees no GPU (the driver is too old (found version 11020)): update it" in text


def test_limits_are_told_with_what_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(checks, "meminfo", lambda name: 64e9)
    monkeypatch.setattr(checks, "allowed", lambda: Allowed({"affinity": 64.0}))
    lines = dict(checks.machine().lines)
    assert (lines["cores"], lines["memory"]) == ("64 for this process, no limit", "64.0 GB, 64.0 GB free, no limit")
    limits = Allowed({"affinity": 64.0, "the control group": 1.5, "Slurm": 8.0}, {"Slurm": 4e9})
    monkeypatch.setattr(checks, "allowed", lambda: limits)
    lines = dict(checks.machine().lines)
    assert lines["cores"] == "1 of 64 for this process, limited to 1.5 by the control group, limited to 8 by Slurm"
    assert lines["memory"] == "64.0 GB, 64.0 GB free, limited to 4.0 GB by Slurm"


@pytest.mark.long
def test_a_device_is_tried_and_one_that_fails_stops_a_run() -> None:
    """The CPU passes, a GPU that does not exist gives problems that stop a run, and a trial must end in time."""
    found = checks.Findings()
    checks.try_device(found, "cpu")
    assert [label.strip() for label, _ in found.lines] == ["free memory", "matrix product", "CTC loss", "GRU"]
    assert not found.problems
    checks.try_device(found, "cuda:77")
    assert len(found.lines) == 4 and len(found.problems) == 4 and all(problem.stops for problem in found.problems)
    checks.try_device(found, "cpu", seconds=0.01)
    assert "did not finish" in found.problems[-1].text
