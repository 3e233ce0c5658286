"""What a check is, and how its rows reach the program that writes the page."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch

Values = dict[str, Any]  # numbers and short texts, the columns of a row
Item = tuple[str, Callable[[], Values]]  # the name of a row, and the work that fills it
MARK = "\x1erow "  # marks a row on a child's standard output


@dataclass(frozen=True)
class Where:
    """The device to check, and whether everything is as small as possible."""

    device: str = "cuda"
    tiny: bool = False

    @property
    def gpu(self) -> bool:
        return self.device == "cuda"

    def wait(self) -> None:
        """Return once the device has computed everything."""
        if self.gpu:
            torch.cuda.synchronize()


class Check(Protocol):
    """A module of `tests.gpu.checks`."""

    TITLE: str
    ABOUT: str  # what the table shows, and what fails
    OPENS_DEVICE: bool  # False: only processes that the check starts use the device
    SECONDS: float  # items that would start later are left out

    def items(self, where: Where) -> Iterator[Item]: ...


class Missed(Exception):
    """A check has its numbers, but they are not as they should be."""

    def __init__(self, why: str, values: Values) -> None:
        super().__init__(why)
        self.values = values


@dataclass(frozen=True)
class Row:
    """One line of a check's table."""

    name: str
    values: Values = field(default_factory=dict)
    failed: str = ""  # the reason in one line; empty: it did not fail
    trace: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, name: str, work: Callable[[], Values]) -> Row:
        """Do the work and return its row; if the work raises an error, the row holds it."""
        since = time.perf_counter()
        try:
            values, failed, trace = work(), "", ""
        except Missed as missed:
            values, failed, trace = missed.values, str(missed), ""
        except Exception as error:  # noqa: BLE001 - the next row is still checked
            words = " ".join(str(error).split()) or "no words"
            values, failed, trace = {}, f"{type(error).__name__}: {words}"[:300], traceback.format_exc()
        return cls(name, values, failed, trace, round(time.perf_counter() - since, 3))

    @classmethod
    def parse(cls, line: str) -> Row | None:
        """The row on a line of a child's output; None if the line holds none."""
        return cls(**json.loads(line.removeprefix(MARK))) if line.startswith(MARK) else None

    def emit(self) -> None:
        print(MARK + json.dumps(_finite(asdict(self))), file=sys.__stdout__, flush=True)


def play(check: Check, where: Where, until: float) -> None:
    """Emit a row for each item of a check. Items that would start after `until` (time.time) are left out."""
    items = check.items(where)
    while True:
        try:
            name, work = next(items)
        except StopIteration:
            return
        except Exception:  # noqa: BLE001 - an error in preparing the items is a row too
            trace = traceback.format_exc()
            Row("preparation", {}, trace.splitlines()[-1][:300], trace).emit()
            return
        if time.time() > until:
            Row(name, {"left out": "no time was left"}).emit()
            continue
        print(f"  {name}", file=sys.stderr, flush=True)
        with contextlib.redirect_stdout(sys.stderr):
            row = Row.of(name, work)
        row.emit()


def _finite(value: Any) -> Any:
    """The value with NaN and infinity as text, since JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
