"""The engine's benchmark, at sizes that take seconds, measures and computes what it claims, and writes its page."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import study
from benchmarks.engine import engine, floor, lane_profile, page, parts, runs, steps, stores, workloads
from fedray.data.features.dataset import batches


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    return parts.Bench(tmp_path, parts.TINY, cores=2)


def test_both_sides_train_the_same(tmp_path: Path) -> None:
    """Both sides have the same models, clips, classes and batch sizes, and so the same number of steps."""
    clips, classes = workloads.pool()
    for model, expected in (("base", 178_083), ("lite", 28_067), ("mutual", 28_067)):
        workload = replace(workloads.KEYWORDS[model], clients=6)
        config, program = runs.build(tmp_path, stores.write(tmp_path / "clips", workload), workload, 1, 1)
        task, client = program.algorithm.task, program.data.load("client-0005")
        assert task.flat("cpu").layout.size == expected == sum(p.numel() for p in workload.shared().net().parameters())
        local = config.algorithm.settings.client
        assert local.clip is None and (local.lr, local.epochs) == (workload.lr, workload.epochs)
        rows = (5 * 7 + np.arange(20) * 13) % 2000
        np.testing.assert_array_equal(task.targets(client), classes[rows])
        # half a unit in the last of float16's eleven bits
        found = list(batches(client, local.batch, None))
        np.testing.assert_allclose(
            np.concatenate([batch.features for batch in found]), clips[rows], rtol=2**-11, atol=2**-24
        )
        assert [len(batch) for batch in found] == [16, 4] and workloads.steps(workload, 5) == 2


@pytest.mark.parametrize("name", workloads.RECOGNITION)
def test_both_sides_recognise_the_same(name: str, tmp_path: Path) -> None:
    """Both sides have the same network, utterances, tokens and steps, and the same loss without padding and dropout."""
    workload = workloads.RECOGNITION[name]
    config, program = runs.build(tmp_path, stores.write(tmp_path / "pool", workload), workload, 1, 1)
    task, local = program.algorithm.task, config.algorithm.settings.client
    assert task.tokeniser.size == workload.tokens and config.cohort.size == workload.clients
    assert [getattr(local, key) for key in ("lr", "batch", "epochs", "clip")] == [
        getattr(workload, key) for key in ("lr", "batch", "epochs", "clip")
    ]
    ours, bare = task.flat("cpu").model.eval(), workload.net().eval()
    ours.load_state_dict(bare.state_dict())
    client = program.data.load("client-0005")
    features, lengths, tokens, sizes = workload.data(5)
    np.testing.assert_array_equal(client.lengths, lengths)
    targets = task.targets(client)
    assert [tokens[i, :size].tolist() for i, size in enumerate(sizes.tolist())] == targets
    assert workloads.steps(workload, 5) == workload.epochs * len(list(batches(client, local.batch, None)))
    for batch in batches(client, 1, None):
        (at,) = batch.positions.tolist()
        one = [part[at : at + 1] for part in (features, lengths, tokens, sizes)]
        assert torch.equal(one[0][:, : lengths[at]], batch.features)
        expected = workload.loss(bare, *one).item()
        assert task.loss(ours, batch, [targets[at]]).item() == pytest.approx(expected, rel=1e-4)
        break
    counts = [len(workload.rows(number)) for number in range(workload.clients)]
    assert min(counts) >= 3 and max(counts) <= 40 and np.median(counts) == pytest.approx(10, abs=2)
    assert workloads.seconds().mean() == pytest.approx(2.6, abs=0.05)


def test_a_recogniser_learns_in_bare_speechbrain() -> None:
    """The steps that the floor counts do learn: the loss on one client falls."""
    workload = workloads.RECOGNITION["crdnn"]
    model, data = workload.net(), [part[:6] for part in workload.data(0)]
    losses = [workloads.train(workload, model, data) for _ in range(4)]
    assert losses[-1] < 0.8 * losses[0]


def test_the_floor_shares_the_steps_out() -> None:
    workload = workloads.RECOGNITION["conformer"]
    cohort = workloads.chosen(workload, 0)
    parts = [floor.share(workload, cohort, part, 4) for part in range(4)]
    assert sorted(sum(parts, [])) == sorted(cohort) == list(range(workload.clients))
    loads = [sum(workloads.steps(workload, client) for client in part) for part in parts]
    assert max(loads) - min(loads) <= 2 * workload.epochs
    tiny = replace(workloads.KEYWORDS["mutual"], cohort=2)
    assert floor.workload_of(json.dumps(["Keywords", asdict(tiny)])) == tiny
    assert len(floor.play(tiny, 2)) == 2


@pytest.mark.parametrize("model", ["lite", "mutual", pytest.param("crdnn", marks=pytest.mark.long)])
def test_steps_are_timed_on_both_sides(model: str, tmp_path: Path) -> None:
    found = steps.measure(steps.sides(model, tmp_path), clients=1)
    assert {side: {clock: len(ms) for clock, ms in clocks.items()} for side, clocks in found.items()} == {
        side: {"wall": 1, "CPU": 1} for side in ("fedray", "bare")
    }
    shown = steps.row("a", {"fedray": {"CPU": [1.0, 3.0]}, "bare": {"CPU": [2.0, 2.0]}}, ["CPU"])
    assert shown["bare (CPU ms a step)"] == "2.00" and shown["fedray / bare (CPU)"].startswith("1.000 [")


@pytest.mark.nightly
def test_quick_ends_with_the_ratio(
    cluster: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = study.machine() | {"cores": 2}  # as many as actors
    monkeypatch.setattr(study, "machine", lambda: here)
    engine.main(["--quick", "--tiny"])
    assert re.fullmatch(
        r"CRNN-Base: seconds a round over the floor: \d+\.\d\d", capsys.readouterr().out.splitlines()[-1]
    )


@pytest.mark.nightly
def test_what_travels_runs_on_actors(cluster: None, bench: Any) -> None:
    own = bench.fedray(replace(bench.sizes.workload("own"), width=8, hidden=8), rounds=3)
    assert len(own.seconds) == 2 and min(own.seconds) > 0 and [row["clients/ok"] for row in own.rows] == [2, 2, 2]
    toy = bench.toy(10**6, 16, parameters=1000, rounds=3, period=0.05)
    assert [row["clients/ok"] for row in toy.rows] == [16, 16, 16] and toy.start_s > 0
    assert toy.rows[-1]["engine/driver_bytes"] == 8 * 4 * 10 * (
        10 * 10 + 10
    )  # lanes, bytes per number, ten layers of ten by ten
    assert min(toy.memory.values()) > 0


@pytest.mark.nightly
def test_the_parts_and_their_page(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    memory = {"this process": 10**8, "driver": 2 * 10**8, "client actors": 3 * 10**8, "Ray": 4 * 10**8}
    row = {"time/round_s": 0.5, "time/train_s": 0.4, "time/train_actors_s": 0.6, "engine/driver_bytes": 5e6}
    run = runs.Played([0.55, 0.65], 3.0, [row] * 3, memory)
    monkeypatch.setattr(bench, "fedray", lambda *_, **__: run)
    monkeypatch.setattr(bench, "toy", lambda *_, **__: run)
    monkeypatch.setattr(runs, "ray_here", nullcontext)
    monkeypatch.setattr(floor, "measure", lambda workload, rounds, processes=1: [[9.0, 1.0, 1.0]] * processes)
    numbers: dict[str, Any] = {}
    for name in parts.PARTS:
        measured = parts.floor(bench, ["base", "lite"]) if name == "floor" else parts.PARTS[name](bench)
        engine.merge(numbers, name, measured, engine.stamp(bench.sizes))
    base = numbers["floor"]["base"]
    assert base["floor_s"] == 1.0 / 2 and base["seconds"]["fedray"] == mean([0.55, 0.65])
    assert base["ratio"]["fedray"] == pytest.approx(0.6 / 0.5)
    assert base["overhead_ms"] == pytest.approx(
        (0.6 - 1.0) * 2 * 1000 / 5
    )  # above the bare steps side by side; two cores, five clients
    assert engine.verdict(base) == "CRNN-Base: seconds a round over the floor: 1.20"
    assert numbers["phases"]["phases_s"] == {"training": 0.6 / 2}
    lane = numbers["phases"]["lane_ms"]
    assert min(lane.values()) >= 0 and min(lane[phase] for phase in lane_profile.TIMED) > 0
    assert numbers["cohort"]["runs"][0]["client_ms"] == pytest.approx(1000 * 0.6 / 2)
    page.write(numbers, tmp_path)
    text = (tmp_path / "engine.md").read_text()
    assert "0.600 = 1.20 x [1.20, 1.20]" in text and "| 0.10 | 0.20 | 0.30 | 0.40 | 1.00 |" in text
    assert json.loads((tmp_path / "engine.json").read_text()) == json.loads(json.dumps(numbers))
    assert (tmp_path / "engine.png").read_bytes().startswith(b"\x89PNG")


def test_a_part_is_merged_into_what_is_there() -> None:
    numbers: dict[str, Any] = {"size": {"runs": []}, "floor": {"base": {"ratio": 1}}}
    engine.merge(numbers, "floor", {"lite": {"ratio": 2}}, {"date": "today"})
    assert numbers == {
        "size": {"runs": []},
        "floor": {"base": {"ratio": 1}, "lite": {"ratio": 2, "measured": {"date": "today"}}},
    }


def test_timers_count_the_innermost(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(lane_profile.time, "perf_counter", lambda: float(next(clock)))
    timers = lane_profile.Timers()
    inner = timers.around(lambda: None, "inner")
    steps = timers.around(lambda: iter("ab"), "steps")
    timers.around(lambda: (inner(), list(steps())), "outer")()
    # The clock advances a second at each reading: one before and one after each call, and three steps of the iterator.
    assert timers.seconds == {lane_profile.REST: 1, "outer": 6, "inner": 1, "steps": 4}
