"""`fedray doctor`: its page, and the speed it measures."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import ray
import torch
from rich.console import Console
from torch import Tensor, nn

from fedray import doctor
from fedray.core.machine import Allowed
from fedray.doctor import speed
from fedray.doctor.checks import Findings
from fedray.engine.cluster.resources import Node, Share
from fedray.engine.driver import session
from fedray.engine.settings import EngineSettings


def only(found: Findings) -> tuple[str, bool]:
    (problem,) = found.problems
    return problem.text, problem.stops


class Linear(nn.Module):
    """The smallest model with the signature of CRNN."""

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


def number(pattern: str, text: str) -> float:
    (found,) = re.findall(pattern, text)
    return float(found.replace(",", ""))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the page take seconds. The model is shipped by value, since actors cannot import tests."""
    session.ship(sys.modules[__name__])
    monkeypatch.setattr(speed, "TRAIN_SECONDS", 0.2)
    monkeypatch.setattr(speed, "START_SECONDS", 60.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.long
def test_a_sound_machine(cluster: None, cache: Path, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "START_SECONDS", 240.0)  # actors start slowly next to other tests
    monkeypatch.setattr(speed, "EngineSettings", lambda: EngineSettings(actors=2))
    before = ray.available_resources()["CPU"]
    status, text = page()
    assert status == 0 and "stops a run" not in text
    titles = ["Machine", "GPUs", "Versions", "Environment", "Cache", "What runs here"]
    assert [line for line in text.splitlines() if line in titles] == titles
    assert "a run gets        2 client actors with 1 core each, no GPU" in text  # of the fixture's 4
    assert "1 node with 4 cores and 0 GPUs, was running already" in text and ray.is_initialized()
    assert f"torch             {torch.__version__.partition('+')[0]}" in text and str(cache) in text
    alone, together = (
        number(r"one actor alone +([\d,.]+) clients", text),
        number(r"all at once +([\d,.]+) clients", text),
    )
    # Speeds are printed to 0.1 client per second, which on a starved machine moves the ratio by percentage points.
    least, most = 50 * (together - 0.05) / (alone + 0.05), 50 * (together + 0.05) / (alone - 0.05)
    assert least - 0.5 <= number(r"at once .*: (\d+) % of 2 x", text) <= most + 0.5
    assert 30e6 < 1e6 * number(r"memory +([\d.]+) MB per actor", text) < 2e9
    deadline = time.monotonic() + 30  # Ray takes a moment to release the cores
    while ray.available_resources().get("CPU", 0) < before:
        assert time.monotonic() < deadline, "actors are left over"
        time.sleep(0.1)


def test_speeds_add_up_to_rounds() -> None:
    """50 clients per second alone, 80 on two actors: 80 % of 100. 100 clients take 1.25 s, 100,000 take 1,250 s."""
    lines = dict(speed.speeds(50.0, 80.0, 2))
    assert lines["one actor alone"].startswith("50.0 clients per second")
    assert lines["all at once"] == "80.0 clients per second: 80 % of 2 x 50.0"
    assert lines["a round"] == f"of 100 such clients takes about {1.25:.1f} s, 1,000 rounds {1250 / 60:.1f} min"
    assert (
        dict(speed.speeds(50.0, 2000.0, 64))["a round"] == "of 100 such clients takes about 50 ms, 1,000 rounds 50.0 s"
    )


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
    assert (
        sum(parameter.numel() for parameter in speed.crnn().parameters()) == convolutions + gru + (256 + 1) * 35
    )  # 178 thousand


@pytest.mark.long
def test_actors_that_do_not_start_are_named(cluster: None, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = speed.capacity(Console(file=io.StringIO()), broken)
    text, stops = next((problem.text, problem.stops) for problem in found.problems if "no such weights" in problem.text)
    assert (
        stops and text.startswith("a trial of client actors failed: ") and text.endswith("ValueError: no such weights")
    )
    monkeypatch.setattr(speed, "START_SECONDS", 0.5)
    with pytest.raises(RuntimeError, match="no client actor started in 0 s: .* of 4 cores are free"):
        speed.measure(
            Findings(), Share(1, 3.999, 1.0), Linear, Console(file=io.StringIO())
        )  # the fixture's Ray has no GPU


def test_a_share_that_cannot_be_met_stops(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "resources", lambda: [Node(0.0, 0.0, None, True)])
    (problem,) = [problem for problem in speed.capacity(Console(file=io.StringIO()), Linear).problems if problem.stops]
    assert problem.text.startswith("a trial of client actors failed: Ray has 0 cores in all")


def test_a_ray_that_counts_more_than_is_allowed_is_named() -> None:
    nodes, found = [Node(4.0, 0.0, 8e9, True), Node(64.0, 0.0, 8e9, False)], Findings()
    speed.overcounted(found, nodes, Allowed({"affinity": 4.0}))
    assert not found.problems, "another node's cores are not this process's"
    speed.overcounted(found, nodes, Allowed({"affinity": 4.0, "Slurm": 3.5}, {"Slurm": 2e9}))
    cores, memory = (problem.text for problem in found.problems)
    assert cores.startswith("Ray counts 4 cores here, but this process may use 3: ") and "ray start --head" in cores
    assert memory.startswith("Ray counts 8.0 GB of memory here, but this process may use 2.0 GB: ")


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
    assert only(found) == (
        "1.6 processes competed for the 2 cores in the last minute: an idle machine is faster",
        False,
    )


def test_a_page_without_ray_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    status, text = page()
    assert status == 1 and "stops a run: RAY_ADDRESS is 127.0.0.1:1" in text and "What runs here" not in text
