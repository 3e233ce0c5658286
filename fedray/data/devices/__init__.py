"""Convert published traces to tables of devices, and of when they are available."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedray.data.devices import fedscale, flash, listed
from fedray.data.devices.tables import Converted, Missing

CONVERTERS: dict[str, Callable[[Path, Missing], Converted]] = {
    "fedscale": fedscale.convert,
    "flash": flash.convert,
    "table": listed.convert,
}
