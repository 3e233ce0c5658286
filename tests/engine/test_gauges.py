"""The gauges that a run gives to Ray's metrics agents; the Grafana dashboard shows these, and otherwise only Ray's."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import yaml
from ray.dashboard.modules.reporter.reporter_agent import METRICS_GAUGES

from fedray.core.types import ServerState
from fedray.engine.cluster.reservation import release
from fedray.engine.driver import driver as drivers
from fedray.engine.lane.lane import PHASES
from fedray.engine.telemetry import gauges
from fedray.engine.telemetry.gauges import GAUGES, PRIVATE, VIRTUAL, Gauges
from fedray.runs.folder import Progress
from tests import dashboards
from tests.engine import toys

ROW = {
    "round": 3,
    "clients/ok": 10,
    "time/round_s": 4.0,
    "time/train_s": 3.0,
    "time/evaluate_s": None,
    "time/train_actors_s": 5.0,
    "time/idle_share": 0.2,
    "dev/wer": 12.5,
    "dev/cer": None,
    "train/loss": 1.0,
    "virtual/hours": 6.5,
    "virtual/staleness": 1.5,
    "virtual/wasted_share": 0.25,
    "privacy/epsilon": 1.5,
    "privacy/snr": 3.0,
    "privacy/clipped|encoder": 0.5,
    "privacy/clipped|out": 0.75,
}
Values = dict[tuple[str, ...], float]


class Recorded:
    """A stand-in for Ray's gauges, which keeps the values set last."""

    values: Values = {}

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description and tag_keys[0] == "run"
        self.name, self.keys = name, tag_keys

    def set(self, value: float, tags: dict[str, str]) -> None:
        assert tuple(tags) == self.keys
        Recorded.values[self.name, *tags.values()] = value


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Values:
    monkeypatch.setattr(gauges, "Gauge", Recorded)
    monkeypatch.setattr(Recorded, "values", {})
    return Recorded.values


def after() -> Progress:
    totals = {"up_bytes": 7, "down_bytes": 9, "failed": 2, "seconds": 60.0}
    return Progress(ServerState(np.zeros(1, np.float32), {}), 3, totals=totals, best={"round": 2, "value": 11.5})


def test_a_round(recorded: Values) -> None:
    told = Gauges("/shared/study/trial-1/run")
    told.begin(2, 5)
    told.cached("init", 1, 1)
    told.cached("prepared", 2, 5)
    told.cached("prepared", 1, 1)
    told.round(ROW, after(), "dev/wer", [0.25, 0.75], 4)
    run = "study/trial-1/run"
    assert recorded == {
        ("fedray_round", run): 3,
        ("fedray_rounds", run): 5,
        ("fedray_clients_per_second", run): 2.5,
        ("fedray_dev", run, "dev/wer"): 12.5,
        ("fedray_best", run, "dev/wer"): 11.5,
        ("fedray_idle_share", run, "0"): 0.25,
        ("fedray_idle_share", run, "1"): 0.75,
        ("fedray_failures", run): 2,
        ("fedray_replacements", run): 4,
        ("fedray_traffic_bytes", run, "up"): 7,
        ("fedray_traffic_bytes", run, "down"): 9,
        ("fedray_phase_seconds", run, "round"): 4,
        ("fedray_phase_seconds", run, "train"): 3,
        ("fedray_phase_seconds", run, "evaluate"): 0,
        ("fedray_phase_seconds", run, "train_actors"): 5,
        ("fedray_virtual_hours", run): 6.5,
        ("fedray_staleness", run): 1.5,
        ("fedray_wasted_share", run): 0.25,
        ("fedray_privacy_epsilon", run): 1.5,
        ("fedray_privacy_snr", run): 3.0,
        ("fedray_privacy_clipped", run, "encoder"): 0.5,
        ("fedray_privacy_clipped", run, "out"): 0.75,
        ("fedray_cache_hits", run, "init"): 1,
        ("fedray_cache_misses", run, "init"): 0,
        ("fedray_cache_hits", run, "prepared"): 3,
        ("fedray_cache_misses", run, "prepared"): 3,
    }
    assert {name for name, *_ in recorded} == set(GAUGES)


def test_a_run_without_devices_has_no_virtual_time_and_a_round_without_arrivals_no_staleness(recorded: Values) -> None:
    told = Gauges("run")
    told.round({key: value for key, value in ROW.items() if key not in VIRTUAL.values()}, after(), "dev/wer", [], 0)
    assert not VIRTUAL.keys() & {name for name, *_ in recorded}
    told.round({key: value for key, value in ROW.items() if key != "virtual/staleness"}, after(), "dev/wer", [], 0)
    assert VIRTUAL.keys() & {name for name, *_ in recorded} == {"fedray_virtual_hours", "fedray_wasted_share"}


def test_what_was_set_is_said_again(recorded: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gauges are set again and again, since a round may be longer than Ray remembers them."""
    monkeypatch.setattr(gauges, "REPEAT_SECONDS", 0.01)
    Gauges("run").begin(2, 5)
    recorded.clear()
    deadline = time.monotonic() + 10
    while len(recorded) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert recorded == {("fedray_round", "run"): 2, ("fedray_rounds", "run"): 5}


def test_what_goes_wrong_is_said_once_and_costs_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise OSError("no agent")

    said: list[str] = []
    monkeypatch.setattr(gauges, "Gauge", broken)
    told = Gauges("run", said.append)
    told.begin(0, 5)
    told.round(ROW, after(), "dev/wer", [0.5], 0)
    assert said == ["dashboards no longer show this run: OSError('no agent')"]


def test_a_round_costs_less_than_a_millisecond(cluster: None) -> None:
    told, idle = Gauges("cost"), [0.5] * 20
    told.round(ROW, after(), "dev/wer", idle, 0)
    started = time.process_time()  # CPU time, since the machine has other work too
    for _ in range(100):
        told.round(ROW, after(), "dev/wer", idle, 0)
    assert time.process_time() - started < 0.1


@pytest.mark.nightly
def test_the_agent_of_the_node_exports_a_run(cluster: None, tmp_path: Path) -> None:
    """The agent exports a run's gauges without Ray's dashboard too. The toy has no devices and no privacy."""
    expected = GAUGES.keys() - VIRTUAL.keys() - PRIVATE.keys()
    address = next(
        f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in ray.nodes() if node["Alive"]
    )
    place = "/".join((tmp_path / "run").parts[-3:])
    driver = drivers.start(toys.assignment(tmp_path / "run", rounds=1000, settings=toys.ToySettings(seconds=0.1)))
    try:
        driver.run.remote()
        deadline, found = time.monotonic() + 120, set[str]()
        while time.monotonic() < deadline and len(found) < len(expected):
            time.sleep(0.5)
            text = urllib.request.urlopen(address, timeout=10).read().decode()
            found = {
                match[1]
                for match in re.finditer(r"^ray_(fedray_\w+)\{(.*)\}", text, re.M)
                if f'run="{place}"' in match[2]
            }
        assert found == expected
    finally:
        ray.kill(driver)
        release(str(tmp_path / "run"))  # what a killed driver has reserved stays while its job lives


def test_the_dashboard_shows_what_there_is() -> None:
    asked = {name for _, query in dashboards.queries() for name in re.findall(r"\bray_(\w+)", query)}
    assert asked <= set(GAUGES) | set(METRICS_GAUGES)
    assert set(GAUGES) <= asked
    shown = json.loads((dashboards.ROOT / "dashboards" / "grafana.json").read_text())
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in shown["panels"]]
    assert len(set(places)) == len(places) and len({panel["id"] for panel in shown["panels"]}) == len(places)
    for path in (dashboards.ROOT / "dashboards").rglob("*.yml"):
        assert yaml.safe_load(path.read_text())


def test_every_tag_of_a_query_is_one_of_its_gauge() -> None:
    for _, query in dashboards.queries():
        for name, labels in re.findall(r"\bray_(fedray_\w+)\{([^}]*)\}", query):
            assert set(re.findall(r"(\w+)=", labels)) <= {"run", GAUGES[name][0]}


def test_every_phase_of_a_query_is_one_of_a_row() -> None:
    phases = {"round", "train", "update", "evaluate", "checkpoint", "events", *(f"{name}_actors" for name in PHASES)}
    patterns = {found for _, query in dashboards.queries() for found in re.findall(r'phase=~?"([^"]+)"', query)}
    parts = {part for pattern in patterns for part in pattern.split("|")}
    assert parts and all(any(re.fullmatch(part, phase) for phase in phases) for part in parts), parts


def test_the_page_names_every_gauge() -> None:
    page = (dashboards.ROOT / "docs" / "operations" / "dashboards.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` | {f'`{tag}`' if tag else ''} | {text} |" in page for name, (tag, text) in GAUGES.items())
