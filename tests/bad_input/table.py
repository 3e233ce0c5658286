"""All cases, and the page that shows them."""

from __future__ import annotations

from tests.bad_input import audio, commands, configuration, folders, numbers, tables
from tests.bad_input.case import Case

GROUPS = {
    "Configuration": configuration.CASES,
    "Numbers": numbers.CASES,
    "Tables and lists": tables.CASES,
    "Audio": audio.CASES,
    "Folders and files of runs": folders.CASES,
    "Command line and environment": commands.CASES,
}
CASES: tuple[Case, ...] = tuple(case for cases in GROUPS.values() for case in cases)
