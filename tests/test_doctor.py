"""`fedray doctor`: each problem it is to name, and the page of a machine that works."""

from __future__ import annotations

import io
import re
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray
import torch
from rich.console import Console
from torch import Tensor, nn

from fedray import doctor
from fedray.doctor import looks, speed
from fedray.doctor.looks import Findings
from fedray.engine import session
from fedray.engine.resources import Node, Share


class Linear(nn.Module):
    """As small as can be, with the signature of CRNN."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(speed.BINS, speed.WORDS)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        return self.out(features.sum(1) / lengths[:, None])


def broken() -> nn.Module:
    raise ValueError("no such weights")


def page(build: Callable[[], nn.Module] = Linear) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=200)
    status = doctor.show(console, build)
    return status, console.file.getvalue()


def only(found: Findings) -> tuple[str, bool]:
    (problem,) = found.problems
    return problem.text, problem.stops


def number(pattern: str, text: str) -> float:
    (found,) = re.findall(pattern, text)
    return float(found.replace(",", ""))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page in seconds. The model travels by value: actors cannot import tests."""
    session.ship(sys.modules[__name__])
    monkeypatch.setattr(speed, "TRAIN_SECONDS", 0.2)
    monkeypatch.setattr(speed, "START_SECONDS", 60.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_a_sound_machine(cluster: None, cache: Path, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "START_SECONDS", 240.0)  # beside other tests four actors may take their time
    before = ray.available_resources()["CPU"]
    status, text = page()
    assert status == 0 and "stops a run" not in text
    titles = ["Machine", "GPUs", "Versions", "Environment", "Cache", "What runs here"]
    assert [line for line in text.splitlines() if line in titles] == titles
    assert "a run gets        4 client actors with 0.9975 cores each, no GPU" in text  # of the four cores that the fixture's Ray has
    assert "1 node with 4 cores and 0 GPUs, was here already" in text and ray.is_initialized()
    assert f"torch             {torch.__version__.partition('+')[0]}" in text and str(cache) in text
    alone, together = number(r"one actor alone +([\d,.]+) clients", text), number(r"all at once +([\d,.]+) clients", text)
    assert number(r"at once .*: (\d+) % of 4 x", text) == pytest.approx(100 * together / (4 * alone), abs=1)
    assert 30e6 < 1e6 * number(r"memory +([\d.]+) MB an actor", text) < 2e9
    deadline = time.monotonic() + 30  # Ray takes a moment to book them back
    while ray.available_resources().get("CPU", 0) < before:
        assert time.monotonic() < deadline, "actors are left over"
        time.sleep(0.1)


def test_speeds_add_up_to_rounds() -> None:
    """50 clients a second alone, 80 by two at once: 80 % of 100; 100 clients in 1.25 s, 100,000 in 1,250 s."""
    lines = dict(speed.speeds(50.0, 80.0, 2))
    assert lines["one actor alone"].startswith("50.0 clients a second")
    assert lines["all at once"] == "80.0 clients a second: 80 % of 2 x 50.0"
    assert lines["a round"] == f"of 100 such clients takes about {1.25:.1f} s, 1,000 rounds {1250 / 60:.1f} min"
    assert dict(speed.speeds(50.0, 2000.0, 64))["a round"] == "of 100 such clients takes about 50 ms, 1,000 rounds 50.0 s"


def test_a_client_is_two_steps_over_twenty_clips() -> None:
    threads = torch.get_num_threads()
    bench = speed.Bench(Linear, 0.0)
    torch.set_num_threads(threads)
    lengths: list[int] = []
    bench.model.register_forward_pre_hook(lambda model, inputs: lengths.append(len(inputs[0])))
    before = bench.model.out.weight.clone()
    bench.client()
    assert lengths == [16, 4] and not torch.equal(before, bench.model.out.weight)
    convolutions, gru = (40 * 3 + 1) * 64 + (64 * 3 + 1) * 64, 2 * 3 * 128 * (64 + 128 + 2)
    assert sum(parameter.numel() for parameter in speed.crnn().parameters()) == convolutions + gru + (256 + 1) * 35  # 178 thousand


@pytest.mark.long
def test_actors_that_do_not_start_are_named(cluster: None, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = speed.capacity(Console(file=io.StringIO()), broken)
    text, stops = next((problem.text, problem.stops) for problem in found.problems if "no such weights" in problem.text)
    assert stops and text.startswith("trying what a run does failed: ") and text.endswith("ValueError: no such weights")
    monkeypatch.setattr(speed, "START_SECONDS", 0.5)
    with pytest.raises(RuntimeError, match="no client actor started within 0 s: something else holds the cores or GPUs"):
        speed.measure(Findings(), Share(1, 3.999, 1.0), Linear, Console(file=io.StringIO()))  # the fixture's Ray has no GPU


def test_a_share_that_cannot_be_met_stops(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "resources", lambda: [Node(0.0, 0.0, None, True)])
    (problem,) = [problem for problem in speed.capacity(Console(file=io.StringIO()), Linear).problems if problem.stops]
    assert problem.text.startswith("trying what a run does failed: Ray has 0 cores in all")


def test_more_cores_booked_than_there_are_is_named(cluster: None, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "usable_cores", lambda: 3)
    monkeypatch.setattr(speed, "measure", lambda *arguments: 1e9)
    texts = [problem.text for problem in speed.capacity(Console(file=io.StringIO()), Linear).problems]
    assert any(re.search(r"Ray counts 4 cores here, but this process may use 3: .* engine\.actors=3, or start Ray", text) for text in texts)


def test_pools_in_words() -> None:
    assert speed.words(Share(2, 0.995, 0.0)) == "2 client actors with 0.995 cores each, no GPU"
    assert speed.words(Share(1, 1.0, 0.0)) == "1 client actor with 1 core, no GPU"
    assert speed.words(Share(4, 3.0, 0.25)) == "4 client actors with 3 cores and 0.25 GPUs each"
    assert speed.cluster([Node(4, 1, None, True), Node(8, 0, None, False)]) == "2 nodes with 12 cores and 1 GPU"


def test_what_takes_a_while_is_said() -> None:
    plain, terminal = Console(file=io.StringIO()), Console(file=io.StringIO(), force_terminal=True)
    for console in (plain, terminal):
        with speed.doing(console, "waiting"):
            pass
    assert plain.file.getvalue() == "  waiting ...\n"
    assert "waiting" in terminal.file.getvalue() and "waiting ..." not in terminal.file.getvalue()  # a spinner


def test_a_busy_machine_is_named() -> None:
    found = Findings()
    speed.busy(found, 0.9, 2)
    assert not found.problems
    speed.busy(found, 1.6, 2)
    assert only(found) == ("1.6 processes wanted the 2 cores in the last minute: a quiet machine is faster than these numbers", False)


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert not looks.environment().problems
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert only(looks.environment())[0].startswith("OMP_NUM_THREADS is 4: several threads a process are slower")
    monkeypatch.delenv("OMP_NUM_THREADS")
    text, stops = only(looks.environment())
    assert text.startswith("OMP_NUM_THREADS is not set") and text.endswith("export OMP_NUM_THREADS=1") and not stops


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_address_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, listening: socket.socket) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        text, stops = only(looks.environment())
        assert text.startswith(f"RAY_ADDRESS is {address}, but no Ray answers there: start it") and stops
    assert not looks.answers(f"127.0.0.1:{listening.getsockname()[1]}", seconds=0.2)  # takes the call and says nothing
    assert looks.answers("auto") and looks.answers("local")


def test_a_page_without_ray_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    status, text = page()
    assert status == 1 and "stops a run: RAY_ADDRESS is 127.0.0.1:1" in text and "What runs here" not in text


def test_something_else_at_the_address(listening: socket.socket) -> None:
    def serve() -> None:
        with listening.accept()[0] as line:
            line.recv(100)
            line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = threading.Thread(target=serve)
    server.start()
    assert not looks.answers(f"127.0.0.1:{listening.getsockname()[1]}")
    server.join()


def test_rays_own_port_answers(cluster: None) -> None:
    assert looks.answers(ray.get_runtime_context().gcs_address)


def test_the_cache_is_counted(tmp_path: Path) -> None:
    """Two corpora of 1.5 MB in all, a theta_0 of 0.2 MB; locks and half-built folders are not entries."""
    for name, length in (
        ("corpora/a/x.wav", 1_000_000),
        ("corpora/b/deep/y.wav", 500_000),
        ("init/k.pt", 200_000),
        ("features/f.tmp/z", 9),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(length))
    (tmp_path / "corpora/a.lock").touch()
    found = looks.cache(tmp_path)
    assert found.lines[1:] == [("corpora", "2, 1.5 MB"), ("features", "0, 0.0 MB"), ("init", "1, 0.2 MB"), ("prepared", "0, 0.0 MB")]
    assert not found.problems and not looks.cache(tmp_path / "not" / "yet").problems


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text, stops = only(looks.cache(tmp_path / "file"))
    assert text.startswith(f"the cache {tmp_path / 'file'} cannot be written") and "set FEDRAY_CACHE" in text and stops
    text, stops = only(looks.cache(tmp_path / "file" / "cache"))
    assert stops


def test_little_room(tmp_path: Path) -> None:
    found = Findings()
    looks.disk(found, "disk", tmp_path / "not" / "yet", "go away", least=float("inf"))
    assert re.fullmatch(r".*yet has [\d.,]+ [GM]B of disk left: make room, or go away", only(found)[0])
    found = Findings()
    looks.shared_memory(found, tmp_path, least=float("inf"))
    text, stops = only(found)
    assert re.match(rf"{tmp_path} has [\d.,]+ [GM]B free: Ray's object store will lie on disk.*--shm-size", text) and not stops
    found = Findings()
    looks.shared_memory(found, tmp_path / "none")
    assert only(found)[0].startswith(f"there is no {tmp_path / 'none'}: Ray's object store will lie on disk")


def test_packages_that_do_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "espeakng_loader", None)
        text, stops = only(looks.versions())
        assert 'pip install "fedray[synth]"' in text and not stops
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fedray.experiment", None)
        text, stops = only(looks.versions())
        assert text.startswith("fedray does not load (") and stops
    monkeypatch.setitem(sys.modules, "torchaudio", None)
    text, stops = only(looks.versions())
    assert text.startswith("torchaudio does not load (") and "pip install --force-reinstall 'torch>=2.11" in text and stops


def test_a_gpu_that_torch_does_not_see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unavailable() -> bool:
        warnings.warn("the driver is too old\n(found version 11020)", stacklevel=2)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", unavailable)
    assert not looks.gpus(tmp_path / "no driver").problems
    (tmp_path / "driver").touch()
    text, _ = only(looks.gpus(tmp_path / "driver"))
    assert "sees no GPU (the driver is too old (found version 11020)): update it" in text


def test_limits_of_a_container(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert looks.container(tmp_path, "0::/\n", 8e9) == (None, None)
    write("cpu.max", "max 100000\n")
    write("pod/cpu.max", "150000 100000\n")  # 1.5 cores for the pod ...
    write("pod/one/cpu.max", "250000 100000\n")  # ... are less than the 2.5 of what is in it
    write("pod/one/memory.max", "4000000000\n")
    assert looks.container(tmp_path, "0::/pod/one\n", 8e9) == (1.5, 4e9)
    assert looks.container(tmp_path, "0::/pod/one\n", 3e9) == (1.5, None)  # more than there is
    write("cpu/cpu.cfs_quota_us", "50000\n")  # version 1; a container sees its own group as the root
    write("cpu/cpu.cfs_period_us", "100000\n")
    write("memory/memory.limit_in_bytes", "2000000000\n")
    assert looks.container(tmp_path, "5:cpu,cpuacct:/not/seen\n4:memory:/not/seen\n", 8e9) == (0.5, 2e9)
    write("cpu/cpu.cfs_quota_us", "-1\n")
    assert looks.container(tmp_path, "5:cpu,cpuacct:/\n", 8e9) == (None, None)
