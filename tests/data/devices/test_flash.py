"""FLASH's phones are available while they are charging, on Wi-Fi and locked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedray.data.devices import flash
from fedray.data.devices.tables import WINDOWS, Converted, Missing

pytest.importorskip("ijson", reason="FLASH's traces are read by ijson, which is not installed")
HOUR, DAY = 3600.0, 86400.0
# First night: available from 22:00 until unlocked at 6:30. Second night: without Wi-Fi for half an hour.
NIGHTS = """
2020-01-28 20:00:00\tbattery_charged_on
2020-01-28 21:00:00\tWIFI
2020-01-28 21:30:00\t83.0%
2020-01-28 22:00:00\tscreen_lock
2020-01-29 06:30:00\tscreen_unlock
2020-01-29 23:00:00\tscreen_lock
2020-01-30 01:00:00\t4G
2020-01-30 01:30:00\twifi
2020-01-30 02:00:00\tscreen_off
2020-01-30 03:00:00\tbattery_charged_off
2020-01-30 04:00:00\tbattery_charged_on
"""


def converted(folder: Path, users: Any) -> Converted:
    (folder / "trace.json").write_text(users if isinstance(users, str) else json.dumps(users), encoding="utf-8")
    return flash.convert(folder / "trace.json", Missing())


def user(messages: Any) -> dict[str, Any]:
    return {"guid": "x", "messages": messages, "model": "m"}


def test_windows_by_hand(tmp_path: Path) -> None:
    found = converted(tmp_path, {"ann": user(NIGHTS)})
    # Messages of 32 hours, from 20:00 on, repeat after two days; hours count from the midnight before them.
    by_hand = [(start * HOUR, end * HOUR) for start, end in ((1.5, 3), (22, 24 + 6.5), (24 + 23, 48 + 1))]
    assert found.table.schema.equals(WINDOWS) and not found.notes
    assert [(row["start_s"], row["end_s"]) for row in found.table.to_pylist()] == by_hand
    assert found.period == 2 * DAY and set(found.table["device"].to_pylist()) == {"ann"}


def test_a_moment_is_no_window() -> None:
    """Messages have whole seconds, so the last condition may begin in the second in which another ends."""
    ready = "2020-01-28 01:00:00\twifi\n2020-01-28 02:00:00\tbattery_charged_on\n"
    moment = "2020-01-28 03:00:00\tscreen_lock\n2020-01-28 03:00:00\tscreen_unlock\n"
    assert flash.windows(ready + moment, "") == ([], DAY)


def test_messages_out_of_order_give_the_same(tmp_path: Path) -> None:
    turned = "\n".join(reversed(NIGHTS.split("\n")))
    assert converted(tmp_path, {"ann": user(turned)}).table.equals(converted(tmp_path, {"ann": user(NIGHTS)}).table)


@pytest.mark.parametrize("state", ["battery_charged_off", "screen_unlock", "2G", "unknown"])
def test_each_condition_is_needed(state: str) -> None:
    ready = "\n".join(f"2020-01-28 0{hour}:00:00\t{word}" for hour, word in enumerate(("wifi", "battery_charged_on")))
    whole = f"{ready}\n2020-01-28 02:00:00\tscreen_lock\n2020-01-28 05:00:00\t{state}"
    assert flash.windows(whole, "") == ([(2 * HOUR, 5 * HOUR)], DAY)
    for left_out in whole.split("\n")[:3]:
        assert flash.windows(whole.replace(left_out, ""), "") == ([], DAY)


def test_phones_that_are_never_available_are_counted(tmp_path: Path) -> None:
    users = {
        "ann": user(NIGHTS),
        "bob": user(""),
        "eve": user("no message\n"),
        "dan": user("2020-01-28 20:00:00\twifi"),
    }
    found = converted(tmp_path, users)
    assert set(found.table["device"].to_pylist()) == {"ann"}
    assert found.notes == (f"{tmp_path / 'trace.json'}: left out 3 devices that are never available (bob, eve, dan)",)


@pytest.mark.parametrize(
    ("users", "words"),
    [
        ("{", "is not JSON, before byte "),
        ('{"ann": {"messages": "x"', "is not JSON, before byte "),
        ("[]", "has no device that is ever available"),
        ({}, "has no device that is ever available"),
        ({"ann": user("")}, "has no device that is ever available"),
        ({"ann": 3}, "user 'ann' has no text under the key messages"),
        ({"ann": user(["a"])}, "user 'ann' has no text under the key messages"),
        (
            {"ann": user("2020-01-28 20:00:00\tdancing")},
            "user 'ann': '2020-01-28 20:00:00\\tdancing': the state is none",
        ),
        ({"": user(NIGHTS)}, " user '': the device is missing"),
        ({"x" * 201: user(NIGHTS)}, "the device has 201 characters"),
    ],
)
def test_what_is_wrong_is_named(users: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as refused:
        converted(tmp_path, users)
    assert str(refused.value).startswith(str(tmp_path / "trace.json")) and words in str(refused.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder, not a file"):
        flash.convert(tmp_path, Missing())
