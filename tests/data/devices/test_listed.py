"""Tables whose header names units; errors name the line that is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedray.core.devices.availability import HOUR, windows_of
from fedray.data.devices import listed, tables
from fedray.data.devices.tables import Converted, Missing

NOTHING = Missing()
PHONES = """device,class,milliseconds,down_mbit_s,up_kbit_s,latency_ms,watts_w,radio_w
ann,fast,50,20,8000,100,4,1
bob,slow,400,4,1000.5,0,2,0.5
"""
HOURS = """device,start_h,end_h,period_h
ann,22,24,24
ann,0,6,24
ann,5,7,24
bob,1,2,48
"""


def converted(folder: Path, text: str, name: str = "phones.csv", missing: Missing = NOTHING) -> Converted:
    (folder / name).write_text(text, encoding="utf-8")
    return listed.convert(folder / name, missing)


def test_units_are_converted(tmp_path: Path) -> None:
    found = converted(tmp_path, PHONES)
    assert found.table.to_pydict() == {
        "device": ["ann", "bob"],
        "class": ["fast", "slow"],
        "seconds": [0.05, 0.4],
        "down": [20e6, 4e6],
        "up": [8e6, 1_000_500.0],
        "latency": [0.1, 0.0],
        "watts": [4.0, 2.0],
        "radio": [1.0, 0.5],
    }
    assert not found.notes and not found.windows


def test_a_tsv_file_in_base_units_gives_the_same(tmp_path: Path) -> None:
    lines = ["device class seconds down_bit_s up_bit_s latency_s watts_w radio_w", "ann fast 0.05 20e6 8e6 0.1 4 1"]
    lines.append("bob slow 0.4 4e6 1000500 0 2 0.5")
    text = "\n".join(lines).replace(" ", "\t") + "\n"
    assert converted(tmp_path, text, "phones.tsv").table.equals(converted(tmp_path, PHONES).table)


def test_columns_that_may_be_missing(tmp_path: Path) -> None:
    text = "device,seconds,down_bit_s,up_bit_s\nann,1,2,3\n"
    found = converted(tmp_path, text, missing=Missing(latency=0.5, watts=2.0, radio=1.0))
    assert found.table.to_pylist() == [
        {"device": "ann", "seconds": 1.0, "down": 2.0, "up": 3.0, "latency": 0.5, "watts": 2.0, "radio": 1.0}
    ]
    assert "every device gets latency = 0.5, watts = 2, radio = 1" in found.notes[0]


def hours(found: Converted) -> list[tuple[str, float, float]]:
    return [(row["device"], row["start_s"] / 3600, row["end_s"] / 3600) for row in found.table.to_pylist()]


def test_windows_have_the_longest_period(tmp_path: Path) -> None:
    found = converted(tmp_path, HOURS)
    # ann's night and morning are one window, which comes twice in bob's 48 hours.
    assert hours(found) == [("ann", 22, 24 + 7), ("ann", 24 + 22, 48 + 7), ("bob", 1, 2)]
    assert found.windows and found.period == 48 * 3600


def test_windows_without_a_period(tmp_path: Path) -> None:
    found = converted(tmp_path, "device,start_h,end_h\nann,0,6\nann,5,7\nbob,22,30\n")
    assert hours(found) == [("ann", 0, 7), ("bob", 22, 30)] and found.period is None


def test_a_device_that_is_always_available(tmp_path: Path) -> None:
    found = converted(tmp_path, "device,start_h,end_h,period_h\nann,20,44,24\nbob,0,12,24\nbob,12,24,24\n")
    assert hours(found) == [("ann", 0, 24), ("bob", 0, 24)]


def test_the_clock_takes_the_windows(tmp_path: Path) -> None:
    table = converted(tmp_path, HOURS).table.to_pydict()
    names, windows = windows_of(table["device"], *(np.array(table[name]) for name in ("start_s", "end_s")), 48 * 3600.0)
    available = [[hour for hour in range(48) if windows.until(client, hour * HOUR) is not None] for client in (0, 1)]
    night = [22, 23, *range(7)]
    assert names == ["ann", "bob"] and available == [sorted(night + [24 + hour for hour in night]), [1]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", " is empty: its first line must name the columns"),
        ("device,seconds,down_bit_s,up_bit_s\n", " has no devices"),
        (PHONES.replace("device,", "name,"), ":1: unknown column 'name': columns are device, class, seconds or millis"),
        (PHONES.replace("down_mbit_s", "down"), ":1: the column 'down' does not name its unit: call it down_bit_s or "),
        (PHONES.replace("up_kbit_s", "down_bit_s"), ":1: two columns hold down"),
        (PHONES.replace("radio_w", "watts_w"), ":1: two columns hold watts"),
        (PHONES.replace("class,", "up_bit_s,"), ":1: two columns hold up"),
        ("device,seconds,up_bit_s\na,1,2\n", ":1: has no column down_bit_s or down_kbit_s or down_mbit_s: add it"),
        ("seconds,down_bit_s,up_bit_s\n1,2,3\n", ":1: has no column device: add it"),
        (HOURS.replace("end_h", "end"), ":1: the column 'end' does not name its unit: call it end_s or end_h"),
        (PHONES.replace("400", "fast"), ":3: milliseconds must be a number, 0 or more and at most 1e15, not 'fast'"),
        (PHONES.replace("400", "0"), ":3: seconds must be a number, above 0"),
        (PHONES.replace(",0.5", ",-1"), ":3: radio_w must be a number, 0 or more"),
        (PHONES.replace("400", "inf"), ":3: milliseconds must be a number"),
        (PHONES.replace("bob", "ann"), ":3: the device 'ann' has two rows"),
        (PHONES.replace("bob", ""), ":3: the device is missing"),
        (PHONES.replace("slow", ""), ":3: the class is missing"),
        (PHONES.replace("fast", "f" * 201), ":2: the class has 201 characters"),
        (PHONES.replace(",0.5", ""), ":3: the row has 7 fields"),
        (HOURS.replace("bob,1,2", "bob,2,2"), ":5: the window from 7200 to 7200 s must be longer than 0 s"),
        (
            HOURS.replace("22,24,24", "25,26,24"),
            ":2: the window from 90000 to 93600 s must be longer than 0 s, begin before",
        ),
        (
            HOURS.replace("22,24,24", "22,47,24"),
            ":2: the window from 79200 to 169200 s must be longer than 0 s, begin before",
        ),
        (HOURS.replace("5,7,24", "5,7,48"), ":4: ann has the periods 86400 and 172800 s"),
        ("device,start_s,end_s\n", " has no device that is ever available"),
        ("device,start_s,end_s\na,0,1e-9\n", " has no device that is ever available"),
        ("device,start_s,end_s,seconds\na,0,9,1\n", ":1: a table of windows has no seconds: put it into a table of"),
        (PHONES.replace("radio_w", "end_s"), ":1: a table of devices has no end_s"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as refused:
        converted(tmp_path, text)
    assert f"{tmp_path / 'phones.csv'}{words}" in str(refused.value)


def test_a_table_is_written_whole_and_never_over_another(tmp_path: Path) -> None:
    found, path = converted(tmp_path, PHONES), tmp_path / "new" / "phones.parquet"
    tables.write(found.table, path)
    assert pq.read_table(path).equals(found.table) and [*path.parent.iterdir()] == [path]
    with pytest.raises(ValueError, match="phones.parquet already exists: choose another name for --out"):
        tables.write(found.table, path)


def test_a_window_that_is_too_short_leaves_its_device_without_one(tmp_path: Path) -> None:
    found = converted(tmp_path, "device,start_s,end_s\na,0,1e-9\nb,0,5\n")
    assert set(found.table["device"].to_pylist()) == {"b"}
    assert "left out 1 devices that are never available (a)" in found.notes[0]
