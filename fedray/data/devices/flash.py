"""FLASH's traces of phones (Yang et al., WWW 2021): JSON with the states that each phone reported over days.

    {"USER": {"messages": "2020-01-28 21:35:02\\tscreen_lock\\n2020-01-28 21:36:10\\twifi\\n...", ...}, ...}

A phone is available while it charges, is on Wi-Fi and is locked: the rule of FLASH's models/timer.py, after Bonawitz et
al. (MLSys 2019). A state holds until a message changes it, and none holds before its first message. The last window
counts only if a message ends it. A phone with a malformed line is never available.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from fedray.core.texts import check_is_file
from fedray.data.devices import tables
from fedray.data.devices.tables import Converted, Missing, Window, shown

# State in a message -> (condition, whether it holds). The battery's level, "83.0%", has no effect.
STATES = {
    "battery_charged_on": ("charges", True),
    "battery_charged_off": ("charges", False),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
    "wifi": ("wifi", True),
    **dict.fromkeys(("2g", "3g", "4g", "5g", "unknown"), ("wifi", False)),
}
IGNORED = ("screen_on", "screen_off")
CONDITIONS = {"charges", "locked", "wifi"}
FORMAT = "%Y-%m-%d %H:%M:%S"
DAY = 86400.0
READ = 1 << 20  # bytes read at a time


def convert(path: Path, missing: Missing) -> Converted:
    """Convert a trace to the table of availability; FLASH's users have no speeds. One user is in memory at a time.

    A trace repeats after whole days, so nights stay nights; FLASH itself repeats it after its last message.
    A ValueError names the file, and the user whose messages are wrong.
    """
    rows, never = [], []
    for user, record in _users(path):
        messages = record.get("messages") if isinstance(record, dict) else None
        if not isinstance(messages, str):
            raise ValueError(f"{path}: user {shown(user)} has no text under the key messages: fetch the file again")
        spans, period = windows(messages, f"{path}: user {shown(user)}")
        rows += [Window(f" user {shown(user)}", user, start, end, period) for start, end in spans]
        never += [] if spans else [user]
    return tables.windows(path, rows, never)


def windows(messages: str, where: str) -> tuple[list[tuple[float, float]], float]:
    """Find a phone's windows: (start, end) in seconds from midnight, and their period in seconds.

    Without windows, the phone is never available. Raises ValueError for an unknown state; `where` begins the message.
    """
    events = []
    for line in filter(str.strip, messages.split("\n")):
        time, _, state = (part.strip() for part in line.partition("\t"))
        try:
            events.append((datetime.strptime(time, FORMAT), state.lower()))
        except ValueError:
            return [], DAY
        if state.lower() not in (*STATES, *IGNORED) and not state.endswith("%"):
            raise ValueError(
                f"{where}: {line!r:.80}: the state is none of FLASH's, such as wifi: correct or drop the line"
            )
    if not events:
        return [], DAY
    events.sort(key=lambda event: event[0])
    first = events[0][0].replace(hour=0, minute=0, second=0)
    period = DAY * max(1, math.ceil((events[-1][0] - events[0][0]).total_seconds() / DAY))
    holds: set[str] = set()
    spans, start = [], None
    for moment, state in events:
        condition, on = STATES.get(state, (None, False))
        if condition is not None:
            (holds.add if on else holds.discard)(condition)
        now = (moment - first).total_seconds()
        if holds == CONDITIONS and start is None:
            start = now
        elif holds != CONDITIONS and start is not None:
            if start < now:  # messages have whole seconds
                spans.append((start % period, start % period + now - start))
            start = None
    return spans, period


def _users(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        import ijson
    except ImportError as error:
        raise ValueError('--convert flash needs ijson: pip install "fedray[flash]"') from error
    check_is_file(path, "name state_traces.json or another trace of FLASH")
    with path.open("rb") as file:
        try:
            yield from ijson.kvitems(file, "", use_float=True, buf_size=READ)
        except (ijson.JSONError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: is not JSON, before byte {file.tell():,} ({reason}): fetch it again") from error
