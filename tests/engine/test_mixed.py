"""Nodes are compared when their client actors start: what may not differ is refused, what may is recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedray.core.types import RunError
from fedray.engine.actors.actor import Answer
from fedray.engine.cluster import mixed
from fedray.engine.cluster.mixed import Nodes, Setup
from fedray.engine.settings import EngineSettings
from fedray.runs.folder import RunFolder
from tests.engine import in_process, toys

SOFTWARE = {"fedray": "0.1.0", "ray": "2.60.0", "python": "3.11", "numpy": "2.4.0", "torch": "2.14.1", "code": "0a1b"}
RUN = {**SOFTWARE, "processor": "A", "deterministic": "the same bits", "device": "CPU"}
HEAD = Setup("10.0.0.5", SOFTWARE, "A", "")


def node(address: str, processor: str = "A", gpu: str = "", **software: str) -> Setup:
    return Setup(address, {name: version for name, version in (SOFTWARE | software).items() if version}, processor, gpu)


def compared(*setups: Setup, allowed: str = "hardware", run: dict[str, Any] = RUN) -> tuple[Nodes, list[str]]:
    said: list[str] = []
    nodes = Nodes(run, HEAD, allowed, said.append)
    for setup in setups:
        nodes.add(setup)
    return nodes, said


@pytest.mark.parametrize(
    ("software", "words"),
    [
        ({"numpy": "2.4.1"}, "numpy 2.4.1 instead of 2.4.0"),
        ({"numpy": ""}, "numpy not installed instead of 2.4.0"),
        ({"numba": "0.68.1"}, "numba 0.68.1 instead of none"),
        ({"code": "ffff"}, "other code of fedray"),
        ({"torch": "2.11.0", "code": "ffff"}, "torch 2.11.0 instead of 2.14.1, other code of fedray"),
    ],
)
def test_software_that_differs_is_refused_by_name(software: dict[str, str], words: str) -> None:
    for allowed in ("none", "hardware"):
        with pytest.raises(RunError) as refused:
            compared(HEAD, node("10.0.0.7", **software), allowed=allowed)
        assert str(refused.value) == (
            f"node 10.0.0.7 has {words}, and the run would not have the same bits: install there what the run was "
            "started with, or set engine.mixed_nodes=all"
        )
    nodes, said = compared(HEAD, node("10.0.0.7", **software), allowed="all")
    assert nodes.record()["mixed"] == [f"10.0.0.7: {words}"]
    assert said == [f"{mixed.UNSURE}: different 10.0.0.7: {words}"]


def test_run_json_says_what_is_wanted() -> None:
    """It may be of the process that describes a sweep's trial, or of an older fedray, which recorded less."""
    with pytest.raises(RunError, match=r"node 10\.0\.0\.5 has numpy 2\.4\.0 instead of 2\.3"):
        compared(run=RUN | {"numpy": "2.3"})
    old = {"numpy": "2.4.0", "ray": "2.55.1", "fedray": "0.0.9"}
    compared(HEAD, node("10.0.0.6"), run=old)
    with pytest.raises(RunError, match=r"node 10\.0\.0\.6 has torch 2\.11\.0 instead of 2\.14\.1, and"):
        compared(HEAD, node("10.0.0.6", torch="2.11.0"), run=old)


def test_nodes_of_one_type_keep_the_promise() -> None:
    nodes, said = compared(HEAD, node("10.0.0.6"), HEAD, node("10.0.0.6"), allowed="none")
    entries = [{"address": f"10.0.0.{number}", "processor": "A"} for number in (5, 6)]
    assert nodes.record() == {"nodes": entries} and said == []


def test_hardware_that_differs_is_recorded_or_refused() -> None:
    setups = (
        node("10.0.0.5", gpu="H100, CUDA 13.0"),
        node("10.0.0.6", "B", "L4, CUDA 13.0"),
        node("10.0.0.7", "B", "L4, CUDA 13.0"),
    )
    nodes, said = compared(*setups)
    lines = [
        "processors: A (10.0.0.5), B (10.0.0.6, 10.0.0.7)",
        "GPUs: H100, CUDA 13.0 (10.0.0.5), L4, CUDA 13.0 (10.0.0.6, 10.0.0.7)",
    ]
    told = nodes.record()
    assert told["mixed"] == lines and told["deterministic"] == mixed.UNSURE
    assert [entry["gpu"] for entry in told["nodes"]] == ["H100, CUDA 13.0", "L4, CUDA 13.0", "L4, CUDA 13.0"]
    assert said[-1] == f"{mixed.UNSURE}: different {'; '.join(lines)}"
    words = r"the nodes have different processors: A \(10\.0\.0\.5\), B \(10\.0\.0\.6\); .*mixed_nodes=hardware"
    with pytest.raises(RunError, match=words):
        compared(*setups, allowed="none")


def test_a_resumed_run_remembers_its_nodes() -> None:
    before, _ = compared(HEAD, node("10.0.0.6"))
    run = RUN | before.record()
    nodes, said = compared(node("10.0.0.6"), run=run)
    assert nodes.record()["nodes"] == before.record()["nodes"] and said == []
    nodes, said = compared(node("10.0.0.9", "B"), run=run)
    assert nodes.mixed == ["processors: A (10.0.0.5, 10.0.0.6), B (10.0.0.9)"] and len(said) == 1
    again, said = compared(node("10.0.0.9", "B"), run=RUN | nodes.record())
    assert again.mixed == nodes.mixed and said == [], "said before"


def probed(folder: Path, *nodes: str) -> None:
    """Leave what actors on these nodes write into the run folder."""
    for node in nodes:
        RunFolder(folder).write_text(f"probe/{node}", "")


def test_the_driver_keeps_run_json_up_to_date(tmp_path: Path, cluster: None) -> None:
    """Also for a replacement that starts later on a new node; the first one stands for two nodes that are alike."""
    assignment = toys.assignment(tmp_path)
    here = Setup.here(gpu=False)
    RunFolder(tmp_path).write_json("run.json", {**here.software, "processor": here.processor})
    probed(tmp_path, "one", "two", "three")
    greet = in_process.Driver(assignment, detached=False)._compared()
    greet(Answer("one", "cpu", 1, 0, here))
    told = json.loads((tmp_path / "run.json").read_text())
    assert [entry["processor"] for entry in told["nodes"]] == [here.processor] and "mixed" not in told
    greet(Answer("two", "cpu", 1, 0, replace(here, address="10.0.0.7", processor="another")))
    told = json.loads((tmp_path / "run.json").read_text())
    assert told["mixed"] == [f"processors: {here.processor} ({here.address}), another (10.0.0.7)"]
    with pytest.raises(RunError, match=r"node 10\.0\.0\.8 has numpy 1\.0 instead of "):
        greet(
            Answer("three", "cpu", 1, 0, replace(here, address="10.0.0.8", software=here.software | {"numpy": "1.0"}))
        )


def test_without_a_record_nodes_are_compared_with_the_driver(tmp_path: Path, cluster: None) -> None:
    """A sweep that prepares its trials writes no run.json."""
    driver = in_process.Driver(toys.assignment(tmp_path), detached=False)
    here = Setup.here(gpu=False)
    probed(tmp_path, "one", "two")
    driver._compared()(Answer("one", "cpu", 1, 0, here))
    assert not (tmp_path / "run.json").exists()
    with pytest.raises(RunError, match="has other code of fedray"):
        driver._compared()(Answer("two", "cpu", 1, 0, replace(here, software=here.software | {"code": "ffff"})))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", "580.65.06"),
        (None, None),
    ],
)
def test_the_driver_of_a_gpu_is_named(
    text: str | None, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "version"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(mixed, "NVIDIA", file)
    cuda = SimpleNamespace(get_device_name=lambda: "NVIDIA H100")
    monkeypatch.setattr(mixed, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0")))
    assert mixed._gpu() == "NVIDIA H100, CUDA 13.0" + (f", driver {version}" if version else "")


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="mixed_nodes must be one of none, hardware, all, not 'some'"):
        EngineSettings(mixed_nodes="some")


def test_the_drivers_processor_counts_where_its_machine_works_too() -> None:
    """Client actors on the driver's machine are not listed while it is the only one."""
    nodes, said = compared(node("10.0.0.7", "B"))
    assert not nodes.mixed and not said
    nodes = Nodes(RUN, HEAD, "hardware", said.append)
    nodes.add(node("10.0.0.7", "B"), beside=True)
    assert nodes.mixed == ["processors: A (10.0.0.5), B (10.0.0.7)"] and len(said) == 1
    with pytest.raises(RunError, match="the nodes have different processors"):
        Nodes(RUN, HEAD, "none", said.append).add(node("10.0.0.7", "B"), beside=True)
