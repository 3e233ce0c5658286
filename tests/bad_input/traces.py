"""Device traces that `fedray devices --convert` refuses."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from tests.bad_input.case import Case
from tests.bad_input.corpus import put

PHONES = "device,milliseconds,down_mbit_s,up_mbit_s\nann,50,20,8\nbob,400,4,1\n"
TRACE: Mapping[Any, Any] = {1: {"computation": 162.0, "communication": 5648.0}}
HOSTILE = b"cos\nsystem\n(S'touch hacked'\ntR."


def convert(name: str, kind: str, content: str | bytes, *says: str) -> Case:
    return Case(f"trace: {name}", says, put("trace", content), f"devices --convert {kind} trace --out phones.parquet")


def fedscale(name: str, value: object, *says: str) -> Case:
    return convert(f"FedScale, {name}", "fedscale", pickle.dumps(value, 4), *says)


def table(name: str, old: str, new: str, *says: str) -> Case:
    return convert(f"a table, {name}", "table", PHONES.replace(old, new), *says)


CASES = (
    convert("a pickle that runs a command", "fedscale", HOSTILE, "trace: byte 0: GLOBAL calls or imports code"),
    convert("a pickle that is cut", "fedscale", pickle.dumps(TRACE)[:-9], "trace: not enough data in stream"),
    convert(
        "a pickle that is text",
        "fedscale",
        PHONES,
        "trace: at position 2, opcode b'v' unknown: the file is damaged or not a pickle",
    ),
    fedscale("a set", {1}, "trace: it holds a set, which is not a plain value"),
    fedscale("a list", [1], "trace holds no dictionary of devices"),
    fedscale("other keys", {1: {"speed": 1}}, "trace: device 1 does not have the keys of FedScale's traces"),
    fedscale("no speed", {1: TRACE[1] | {"computation": 0}}, "trace: device 1: seconds must be a number, above 0"),
    fedscale("NaN", {1: TRACE[1] | {"communication": float("nan")}}, "device 1: communication must be a number"),
    convert("FLASH, not JSON", "flash", "{", "trace: is not JSON, before byte 1"),
    convert("FLASH, no messages", "flash", '{"ann": {}}', "trace: user 'ann' has no text under the key messages"),
    convert("FLASH, nobody is available", "flash", "{}", "trace has no device that is ever available"),
    table("a column without a unit", "down_mbit_s", "down", "trace:1: the column 'down' does not name its unit"),
    table("a missing column", "milliseconds", "class", "trace:1: has no column seconds or milliseconds: add it"),
    table("an unknown column", "milliseconds", "speed", "trace:1: unknown column 'speed'"),
    table("a word as number", "400", "fast", "trace:3: milliseconds must be a number"),
    table("a rate of 0", "4,1", "0,1", "trace:3: down must be a number, above 0"),
    table("a device twice", "bob", "ann", "trace:3: the device 'ann' has two rows"),
    convert(
        "a window of no length", "table", "device,start_h,end_h\nann,3,3\n", "trace:2: the window from 10800 to 1080"
    ),
    Case("trace: a folder", "is a folder, not a file", command="devices --convert fedscale . --out phones.parquet"),
    Case("trace: a missing file", "none.csv", command="devices --convert table none.csv --out phones.parquet"),
    Case(
        "trace: a file of --out that exists",
        "config.parquet already exists: choose another name for --out",
        put("config.parquet", ""),
        "devices --convert table config.yaml --out config.parquet",
    ),
)
