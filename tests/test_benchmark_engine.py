"""The engine's benchmark, at sizes that take seconds: it measures what it says, computes what it says, and writes its page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedray.data.dataset import batches

ROOT = Path(__file__).parent.parent
MODULES = ("engine", "engine_floor", "engine_page", "engine_parts", "engine_profile", "engine_runs", "engine_toys", "study")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield SimpleNamespace(**{name: import_module(name) for name in MODULES})


@pytest.fixture
def bench(modules: SimpleNamespace, tmp_path: Path) -> Any:
    return modules.engine_parts.Bench(tmp_path, modules.engine_parts.TINY, cores=2)


def test_both_sides_train_the_same(modules: SimpleNamespace, tmp_path: Path) -> None:
    """The same models, clips, classes and sizes of batches; so the same number of steps."""
    floor, runs = modules.engine_floor, modules.engine_runs
    clips, classes = floor.pool()
    stored = runs.write_clips(tmp_path / "clips")
    for model, expected in (("base", 178_083), ("lite", 28_067), ("mutual", 28_067)):
        workload = replace(floor.WORKLOADS[model], clients=6)
        config, program = runs.build(tmp_path, stored, workload, 1, 1)
        task, client = program.algorithm.task, program.data.load("client-0005")
        assert task.flat("cpu").layout.size == expected == sum(p.numel() for p in floor.net(workload.shared()).parameters())
        assert config.algorithm.client.clip is None and config.algorithm.client.lr == floor.LR
        rows = (5 * 7 + np.arange(20) * 13) % 2000
        np.testing.assert_array_equal(task.targets(client), classes[rows])
        # half a unit in the last of float16's eleven digits
        found = list(batches(client, config.algorithm.client.batch, None))
        np.testing.assert_allclose(np.concatenate([batch.features for batch in found]), clips[rows], rtol=2**-11, atol=2**-24)
        assert [len(batch) for batch in found] == [16, 4] == [len(clips[rows][start : start + floor.BATCH]) for start in (0, 16)]


@pytest.mark.long
def test_quick_ends_with_the_ratio(
    cluster: None, modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = modules.study.machine() | {"cores": 2}  # as many actors
    monkeypatch.setattr(modules.study, "machine", lambda: here)
    modules.engine.main(["--quick", "--tiny"])
    assert re.fullmatch(r"CRNN-Base: seconds a round over the floor: \d+\.\d\d", capsys.readouterr().out.splitlines()[-1])


@pytest.mark.long
def test_what_travels_runs_on_actors(cluster: None, modules: SimpleNamespace, bench: Any) -> None:
    wide = bench.fedray(replace(bench.sizes.workload("wide"), width=8, hidden=8), rounds=3)
    assert len(wide.seconds) == 2 and min(wide.seconds) > 0 and [row["clients/ok"] for row in wide.rows] == [2, 2, 2]
    toy = bench.toy(10**6, 16, parameters=1000, rounds=3, period=0.05)
    assert [row["clients/ok"] for row in toy.rows] == [16, 16, 16] and toy.start_s > 0
    assert toy.rows[-1]["engine/driver_bytes"] == 8 * 4 * 10 * (10 * 10 + 10)  # lanes, bytes a number, ten layers of ten by ten
    assert min(toy.memory.values()) > 0


@pytest.mark.long
def test_the_parts_and_their_page(modules: SimpleNamespace, bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts, played = modules.engine_parts, modules.engine_runs.Played
    memory = {"this process": 10**8, "driver": 2 * 10**8, "client actors": 3 * 10**8, "Ray": 4 * 10**8}
    row = {"time/round_s": 0.5, "time/train_s": 0.4, "time/train_actors_s": 0.6, "engine/driver_bytes": 5e6}
    run = played([0.55, 0.65], 3.0, [row] * 3, memory)
    monkeypatch.setattr(bench, "fedray", lambda *_, **__: run)
    monkeypatch.setattr(bench, "toy", lambda *_, **__: run)
    monkeypatch.setattr(modules.engine_runs, "ray_here", nullcontext)
    monkeypatch.setattr(modules.engine_floor, "measure", lambda workload, rounds, processes=1: [[9.0, 1.0, 1.0]] * processes)
    numbers: dict[str, Any] = {}
    for name in parts.PARTS:
        measured = parts.floor(bench, ["base", "lite"]) if name == "floor" else parts.PARTS[name](bench)
        modules.engine.merge(numbers, name, measured, modules.engine.stamp(bench.sizes, None))
    base = numbers["floor"]["base"]
    assert base["floor_s"] == 1.0 / 2 and base["seconds"]["fedray"] == mean([0.55, 0.65])
    assert base["ratio"]["fedray"] == pytest.approx(0.6 / 0.5)
    assert base["overhead_ms"] == pytest.approx((0.6 - 1.0) * 2 * 1000 / 5)  # over the steps side by side; two cores, five clients
    assert modules.engine.verdict(base) == "CRNN-Base: seconds a round over the floor: 1.20"
    assert numbers["phases"]["phases_s"] == {"training": 0.6 / 2}
    lane = numbers["phases"]["lane_ms"]
    assert min(lane.values()) >= 0 and min(lane[phase] for phase in modules.engine_profile.TIMED) > 0
    assert numbers["cohort"]["runs"][0]["client_ms"] == pytest.approx(1000 * 0.6 / 2)
    modules.engine_page.write(numbers, tmp_path)
    page = (tmp_path / "engine.md").read_text()
    assert "0.600 = 1.20 x [1.20, 1.20]" in page and "| 0.10 | 0.20 | 0.30 | 0.40 | 1.00 |" in page
    assert json.loads((tmp_path / "engine.json").read_text()) == json.loads(json.dumps(numbers))
    assert (tmp_path / "engine.png").read_bytes().startswith(b"\x89PNG")


def test_a_part_is_merged_into_what_is_there(modules: SimpleNamespace) -> None:
    numbers: dict[str, Any] = {"size": {"runs": []}, "floor": {"base": {"ratio": 1}}}
    modules.engine.merge(numbers, "floor", {"lite": {"ratio": 2}}, {"date": "today"})
    assert numbers == {"size": {"runs": []}, "floor": {"base": {"ratio": 1}, "lite": {"ratio": 2, "measured": {"date": "today"}}}}


def test_timers_count_the_innermost(modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(modules.engine_profile.time, "perf_counter", lambda: float(next(clock)))
    timers = modules.engine_profile.Timers()
    inner = timers.around(lambda: None, "inner")
    steps = timers.around(lambda: iter("ab"), "steps")
    timers.around(lambda: (inner(), list(steps())), "outer")()
    # Every look at the clock is a second after the last: one before and one after each call, and three steps of the iterator.
    assert timers.seconds == {modules.engine_profile.REST: 1, "outer": 6, "inner": 1, "steps": 4}
