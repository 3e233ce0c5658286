"""FedScale's two files become tables, and errors name what is wrong with them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from fedray.data.devices import fedscale
from fedray.data.devices.tables import DEVICES, WINDOWS, Missing, paired

NOTHING = Missing()
CAPACITY = {3: {"computation": 162.0, "communication": 5648.0}, "b": {"computation": 40, "communication": 125.5}}
BEHAVIOUR = {
    7: {"duration": 9, "inactive": [20, 35, 99], "finish_time": 60, "active": [10, 20, 50], "model": "CPH1801"},
    8: {"duration": 1, "inactive": [5], "finish_time": 40, "active": [5], "model": "SM-G611MT"},
    9: {"duration": 1, "inactive": [30, 8], "finish_time": 40, "active": [25.5, 2], "model": "SM-J730GM"},
}


def converted(folder: Path, value: Any, missing: Missing = NOTHING) -> Any:
    (folder / "trace").write_bytes(pickle.dumps(value))
    return fedscale.convert(folder / "trace", missing)


def test_capacity_is_the_table_that_one_would_write_by_hand(tmp_path: Path) -> None:
    found = converted(tmp_path, CAPACITY, Missing(latency=0.2, watts=3.0, scale=2.0))
    # A pass takes three inferences, here of twice the work (scale=2); kbit/s hold in both directions.
    names, seconds, rates = ["3", "b"], [2 * 3 * 0.162, 2 * 3 * 0.04], [5_648_000.0, 125_500.0]
    by_hand = {"device": names, "seconds": pytest.approx(seconds), "down": rates, "up": rates}
    assert found.table.schema.equals(DEVICES) and not found.windows
    assert found.table.to_pydict() == by_hand | {"latency": [0.2, 0.2], "watts": [3.0, 3.0], "radio": [0.0, 0.0]}
    assert found.notes == (
        f"{tmp_path / 'trace'} lacks some values: every device gets latency = 0.2, watts = 3, radio = 0",
    )


def test_behaviour_is_the_table_that_one_would_write_by_hand(tmp_path: Path) -> None:
    found = converted(tmp_path, BEHAVIOUR)
    # Windows that touch become one, a window that crosses the period's end stops there, an empty one is dropped.
    # The longest period is 60 s; the period of 40 s begins a second time within it.
    rows = [("7", 10, 35), ("7", 50, 60), ("9", 2, 8), ("9", 25.5, 30), ("9", 42, 48)]
    assert found.table.schema.equals(WINDOWS) and found.windows
    assert [tuple(row.values()) for row in found.table.to_pylist()] == rows
    assert found.notes == (f"{tmp_path / 'trace'}: left out 1 devices that are never available (8)",)
    assert found.period == 60


def test_devices_get_windows_in_turn(tmp_path: Path) -> None:
    devices = converted(tmp_path, {name: CAPACITY[3] for name in "abcde"}).table
    windows = converted(tmp_path, BEHAVIOUR).table
    first, second = [10, 50], [2, 25.5, 42]
    starts = [("a", first), ("b", second), ("c", first), ("d", second), ("e", first)]
    found = [(row["device"], row["start_s"]) for row in paired(devices, windows).to_pylist()]
    assert found == [(name, start) for name, some in starts for start in some]


def but(value: dict[Any, Any], **changes: Any) -> dict[Any, Any]:
    """Return the trace with changes to its first device."""
    key = next(iter(value))
    return value | {key: value[key] | changes}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "holds no dictionary of devices"),
        ({}, "holds no dictionary of devices"),
        ({1: 2}, " device 1 does not have the keys of FedScale's traces, either computation and communication, or"),
        ({1: {"computation": 1.0}}, " device 1 does not have the keys"),
        (CAPACITY | {5: {}}, " device 5 does not have the keys"),
        (BEHAVIOUR | {5: {}}, " device 5 does not have the keys"),
        (but(CAPACITY, computation=0), " device 3: seconds must be a number, above 0 and at most 1e15, not "),
        (but(CAPACITY, computation=-1.0), " device 3: computation must be a number, 0 or more"),
        (but(CAPACITY, communication=float("nan")), " device 3: communication must be a number"),
        (but(CAPACITY, communication=10**400), " device 3: communication must be a number"),
        (
            but(CAPACITY, communication=10**5000),
            "must be a number, 0 or more and at most 1e15, not a number that is too",
        ),
        (
            {10**5000: CAPACITY[3]},
            " device a number that is too long: the key of a device must be text or a whole number",
        ),
        ({2.5: CAPACITY[3]}, " device 2.5: the key of a device must be text or a whole number"),
        ({(1, 2): BEHAVIOUR[7]}, " device (1, 2): the key of a device must be text or a whole number"),
        (but(CAPACITY, communication=True), " device 3: communication must be a number"),
        (but(CAPACITY, communication=[1]), " device 3: communication must be a number"),
        (CAPACITY | {"": CAPACITY[3]}, " device '': the device is missing"),
        (CAPACITY | {"x" * 201: CAPACITY[3]}, "the device has 201 characters, more than 200"),
        (CAPACITY | {"3": CAPACITY[3]}, " device '3': the device '3' has two rows"),
        (but(BEHAVIOUR, active=[10]), " device 7: every active needs an inactive"),
        (but(BEHAVIOUR, active=[10, 36, 50]), " device 7: every active needs an inactive that is not before it"),
        (but(BEHAVIOUR, active=10), " device 7: active and inactive must be lists"),
        (but(BEHAVIOUR, active=[10, 20, "x"]), " device 7: a time must be a number, 0 or more"),
        (but(BEHAVIOUR, active=[10, 20, -1]), " device 7: a time must be a number, 0 or more"),
        ({8: BEHAVIOUR[8]}, "has no device that is ever available"),
    ],
)
def test_what_is_wrong_is_named(value: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as refused:
        converted(tmp_path, value)
    assert str(refused.value).startswith(str(tmp_path / "trace")) and words in str(refused.value)
