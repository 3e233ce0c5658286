"""The sections `devices` and `clock`: what they build for a federation, and which settings they conflict with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedray.config.schema import plain
from fedray.config.source import ConfigError
from fedray.core.devices.availability import Anytime, Windows
from fedray.core.devices.settings import BufferedClock, ClassDevices, DeviceClass, RoundsClock
from fedray.core.devices.staleness import HingeStaleness
from fedray.core.devices.table import Devices
from fedray.core.devices.trips import SECOND, Load
from fedray.core.settings import Choice
from fedray.core.strategies import FLTrust
from fedray.experiment import build_data, check, check_setup, load
from fedray.experiment.builders import build_algorithm, check_statistics
from fedray.experiment.devices import build_clock, build_devices, fingerprint
from fedray.models.crdnn import CRDNNSettings
from tests import small_corpus
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

SERVER = [("s0", "sue", "one two"), ("s1", "sue", "three")]
CLIENTS = [("a0", "ann", "one"), ("a1", "ann", "two"), ("b0", "bob", "one"), ("c0", "cid", "two")]
PHONE = {"seconds": 0.1, "down": 1e6, "up": 1e6}
CLASSES = {"kind": "classes", "classes": {"phone": PHONE}}
PHONES = "devices={kind: classes, classes: {phone: {seconds: 0.1, down: 1e6, up: 1e6}}}"
BUFFERED = "clock={kind: buffered, concurrency: 4, buffer: 2}"
TABLE = {"device": ["a", "b", "c"], "seconds": [1.0, 2.0, 3.0], "down": [1e6] * 3, "up": [1e6] * 3}
TABLE |= {"latency": [0.5] * 3, "watts": [4] * 3, "radio": [1.0] * 3}


@pytest.fixture
def folder(tmp_path: Path, without_ray: None) -> Path:  # noqa: F811
    return small_corpus.write(tmp_path, server=SERVER, clients=CLIENTS)


def built(folder: Path, devices: dict[str, Any], **sections: Any) -> tuple[Any, Any]:
    """The checked configuration and the federation."""
    config, source = load(small_corpus.config(folder, "server", "clients", devices=devices, **sections))
    config = check(config, source, folder)
    return config, build_data(config, source)[0]


def refused(config: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        check_setup(*load(config, overrides))
    return str(error.value)


def write(folder: Path, name: str, **columns: Any) -> str:
    pq.write_table(pa.table(columns), folder / name)
    return name


def speeds(devices: Devices) -> list[float]:
    return [devices.phases(client, Load(0, 0, 1.0))[2] for client in range(len(devices))]


def test_the_sections() -> None:
    config, source = load("fedavg/keywords", [PHONES, BUFFERED.replace("}", ", staleness: hinge}")])
    assert config.devices == ClassDevices({"phone": DeviceClass(0.1, 1e6, 1e6)})
    assert config.clock == BufferedClock(4, 2, staleness=HingeStaleness())
    check_setup(config, source)
    assert load(plain(config))[0] == config
    config, source = load("fedavg/keywords")
    assert config.clock == RoundsClock() and plain(config)["devices"] == {"kind": "none"}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["cohort.sampling=oort"], "cohort.sampling=oort prefers fast devices: set devices"),
        (["clock.over=1.3"], "without devices clients take no time, so clock has no effect"),
        ([BUFFERED], "without devices clients take no time"),
        ([PHONES, "cohort.availability=0.5"], "remove cohort.availability and cohort.dropout"),
        ([PHONES, "cohort.dropout=0.5"], "remove cohort.availability and cohort.dropout"),
        ([PHONES, "cohort.sampling=poisson"], "cohort.sampling=poisson takes clients whether they are available"),
        ([PHONES, "cohort.sampling=cyclic"], "cohort.sampling=cyclic takes clients whether they are available"),
        (
            [PHONES, "privacy={kind: gaussian, noise: 1.0, delta: 1e-5}", "strategy.kind=uniform"],
            "with devices, fast clients take part more often, which privacy accounting does not cover",
        ),
        (["devices={kind: classes}"], "devices.classes is missing"),
        (["devices={kind: table}"], "devices.file is missing"),
        (["clock={kind: buffered, concurrency: 4}"], "clock.buffer is missing"),
        ([PHONES, BUFFERED, "algorithm.kind=feddyn"], "needs updates as clients send them: set clock.staleness"),
        (["algorithm.kind=feddyn", "strategy.clip_norm=1"], "needs updates as clients send them: leave out strategy"),
        ([PHONES, BUFFERED, "strategy.kind=fltrust"], "gives all updates one length, so clock.staleness has no effect"),
        (["strategy={kind: fltrust, clip_norm: 1}"], "gives all updates one length, so clip_norm has no effect"),
        (["algorithm.kind=scaffold", "strategy.kind=q_fair"], "strategy.kind q_fair gives the sum a length of its own"),
        (
            ["algorithm.kind=feddyn", "strategy.kind=q_fair"],
            "feddyn needs a mean of its clients' updates",
        ),
    ],
)
def test_what_does_not_go_together(overrides: list[str], words: str) -> None:
    assert words in refused("fedavg/keywords", *overrides)


def test_an_algorithm_that_trains_in_one_place_has_no_devices() -> None:
    assert "sl trains in one place, without devices" in refused("fednst/baselines/sl", PHONES)


def test_a_population_is_large_enough_for_the_clock(folder: Path) -> None:
    words = r"the clock needs at least concurrency \+ buffer = 4 clients, .* the population has 3"
    clock = {"kind": "buffered", "concurrency": 2, "buffer": 2}
    with pytest.raises(ConfigError, match=words):
        built(folder, CLASSES, clock=clock)
    config, data = built(folder, CLASSES, clock=clock | {"refill": "step"})
    assert build_clock(config, data) is not None
    with pytest.raises(ConfigError, match="the clock needs at least concurrency = 4 clients"):
        built(folder, CLASSES, clock={"kind": "buffered", "concurrency": 4, "buffer": 2, "refill": "step"})


def test_the_clock_of_a_run(folder: Path) -> None:
    config, data = built(folder, CLASSES, cohort={"size": 2, "sampling": "weighted"})
    clock = build_clock(config, data)
    assert clock is not None and clock.ids == data.client_ids() and clock.size == 2
    step, _ = clock.simulate(clock.start(), 0, lambda client, first: Load(0, 0, data.cost(clock.ids[client])), set())
    assert [trip.end for trip in step.arrived] == [
        round(0.1 * SECOND * data.cost(clock.ids[trip.client])) for trip in step.arrived
    ]
    config, data = built(folder, {"kind": "none"})
    assert build_clock(config, data) is None


def test_a_column_of_the_manifest_names_the_class(folder: Path) -> None:
    classes = {name: PHONE | {"seconds": seconds} for name, seconds in (("ann", 1.0), ("bob", 2.0), ("cid", 3.0))}
    config, data = built(folder, {"kind": "classes", "classes": classes, "by": "speaker"})
    devices = build_devices(config, data)
    assert dict(zip(data.client_ids(), speeds(devices), strict=True)) == {"ann": 1.0, "bob": 2.0, "cid": 3.0}
    config, data = built(folder, {"kind": "classes", "classes": {"ann": PHONE}, "by": "speaker"})
    with pytest.raises(ValueError, match="devices.by: no class is named 'bob', which is the speaker of a client"):
        build_devices(config, data)
    config, data = built(folder, {"kind": "classes", "classes": {"one": PHONE, "two": PHONE}, "by": "text"})
    with pytest.raises(ValueError, match="client ann have 2 values of text, such as 'one' and 'two'"):
        build_devices(config, data)
    with pytest.raises(ConfigError, match="a manifest has no column 'accents'; it has utterance, path"):
        built(folder, {"kind": "classes", "classes": {"one": PHONE}, "by": "accents"})


def test_devices_from_a_table(folder: Path) -> None:
    classes = pa.array(["x", "y", "y"]).dictionary_encode()
    given = {"kind": "table", "file": write(folder, "phones.parquet", **TABLE, **{"class": classes})}
    config, data = built(folder, given)
    assert config.devices.file == str(folder / "phones.parquet")
    devices = build_devices(config, data)
    assert sorted(speeds(devices)) == [1.0, 2.0, 3.0] and isinstance(devices.availability, Anytime)
    assert sorted(devices.class_of(client) for client in range(3)) == ["x", "y", "y"]
    assert devices.lost(0) == 0.0 and devices.phases(0, Load(0, 0, 1.0))[0] == 0.5


def test_a_run_writes_down_what_its_tables_hold(folder: Path) -> None:
    found = set()
    for seconds in ([1.0, 2.0, 3.0], [1.0, 2.0, 4.0]):
        file = write(folder, "phones.parquet", **TABLE | {"seconds": seconds})
        config, _ = built(folder, {"kind": "table", "file": file})
        found.add(fingerprint(config.devices)["devices"])
    assert len(found) == 2
    assert fingerprint(built(folder, CLASSES)[0].devices) == {}


def test_a_run_writes_down_what_its_windows_hold(folder: Path) -> None:
    found = set()
    for end in (8.0, 9.0):
        file = write(folder, "windows.parquet", device=["a"], start_s=[1.0], end_s=[end])
        config, _ = built(folder, CLASSES | {"availability": {"kind": "table", "file": file, "period_s": 20}})
        found.add(fingerprint(config.devices)["devices"])
    assert len(found) == 2


def test_each_draw_has_devices_of_its_own(folder: Path) -> None:
    drawn = [speeds(build_devices(*built(folder, CLASSES | {"spread": 1.0, "draw": draw}))) for draw in range(3)]
    assert len({tuple(found) for found in drawn}) == 3


def test_fewer_devices_than_clients(folder: Path) -> None:
    given = {"kind": "table", "file": write(folder, "two.parquet", **{name: of[:2] for name, of in TABLE.items()})}
    config, data = built(folder, given)
    with pytest.raises(ValueError, match=r"there are 2 devices in .*two.parquet for 3 clients: set devices.reuse=true"):
        build_devices(config, data)
    config, data = built(folder, given | {"reuse": True})
    assert set(speeds(build_devices(config, data))) == {1.0, 2.0}


def test_windows_of_the_devices_of_a_table(folder: Path) -> None:
    windows = {"device": ["b", "a", "c"], "start_s": [2.0, 1.0, 3.0], "end_s": [9.0, 9.0, 9]}
    availability = {"kind": "table", "file": write(folder, "windows.parquet", **windows), "period_s": 20}
    given = {"kind": "table", "file": write(folder, "phones.parquet", **TABLE), "availability": availability}
    devices = build_devices(*built(folder, given))
    assert isinstance(devices.availability, Windows)
    for client, seconds in enumerate(speeds(devices)):  # device a computes for 1 s and is available from 1 s on, ...
        at = round(seconds * SECOND)
        assert devices.availability.until(client, at - 1) is None
        assert devices.availability.until(client, at + 40 * SECOND) == 49 * SECOND
    write(folder, "windows.parquet", **{name: of[:2] for name, of in windows.items()})
    config, data = built(folder, given)
    with pytest.raises(ValueError, match=r"windows.parquet: there are no windows of device 'c'"):
        build_devices(config, data)
    of_classes = build_devices(*built(folder, CLASSES | {"availability": availability}))
    assert sorted(of_classes.availability.until(client, 5 * SECOND) for client in range(3)) == [9 * SECOND] * 3  # type: ignore[type-var]


def test_nightly(folder: Path) -> None:
    devices = build_devices(*built(folder, CLASSES | {"availability": "nightly"}))
    assert isinstance(devices.availability, Windows) and len(devices.availability.start) == 3


def test_stale_running_statistics_are_not_averaged(folder: Path) -> None:
    """A buffered clock refuses running statistics, since several stale updates can make a variance negative."""
    config, data = built(folder, CLASSES, clock={"kind": "buffered", "concurrency": 1, "buffer": 1})
    crdnn = replace(config, model=Choice("crdnn", CRDNNSettings(channels=(4,), rnn_neurons=8, dnn_neurons=16)))
    with pytest.raises(ValueError, match="clock.kind=buffered cannot average the running statistics of batch norm"):
        check_statistics(crdnn, build_algorithm(crdnn, data))
    trusting = replace(crdnn, clock=RoundsClock(), strategy=FLTrust())
    with pytest.raises(ValueError, match="strategy.kind fltrust cannot average the running statistics of batch norm"):
        check_statistics(trusting, build_algorithm(trusting, data))
    frozen = replace(crdnn.algorithm, settings=replace(crdnn.algorithm.settings, buffers="frozen"))
    for allowed in (config, replace(crdnn, algorithm=frozen), replace(crdnn, clock=RoundsClock())):
        check_statistics(allowed, build_algorithm(allowed, data))
