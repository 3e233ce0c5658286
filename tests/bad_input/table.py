"""All cases, and the page that shows them."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from tests.bad_input import (
    audio,
    checkpoints,
    commands,
    configuration,
    corpora,
    corpus,
    devices,
    folders,
    lengths,
    numbers,
    speech,
    tables,
    texts,
    traces,
)
from tests.bad_input.case import ACCEPTED, Answer, Case, answer

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"
SHOWN = 300  # characters of an answer that the page shows
GROUPS = {
    "Configuration": configuration.CASES,
    "Numbers": numbers.CASES,
    "Devices and clocks": devices.CASES,
    "Tables and lists": tables.CASES,
    "Texts, folders of audio, and files of another kind": texts.CASES,
    "Corpora": corpora.CASES,
    "Audio": audio.CASES,
    "Lengths of audio": lengths.CASES,
    "Audio against text": speech.CASES,
    "Traces of devices": traces.CASES,
    "Checkpoints and precomputed features": checkpoints.CASES,
    "Folders and files of runs": folders.CASES,
    "Command line and environment": commands.CASES,
}
CASES: tuple[Case, ...] = tuple(case for cases in GROUPS.values() for case in cases)
BY_NAME = {case.name: case for case in CASES}
INTRODUCTION = """# Bad input

Each kind of bad input below ends a command with exit status 2 (bad input) and a message that names the file, line or
key, without a traceback. `python -m tests.bad_input` tries each of them and writes this page.

DIR stands for the folder of the configuration, FEDRAY for that of fedray.
*Found by `fedray data`*: this command reports the same error before a run. With `data.skip_broken` the run continues
without the file and lists it in broken.tsv in the run folder.
"""


@functools.cache
def played(name: str, command: str) -> tuple[Answer, str]:
    """Return the answer to a command of a case, and its text with the parts replaced that differ between machines."""
    case = BY_NAME[name]
    with tempfile.TemporaryDirectory(prefix="fedray-bad-") as place:
        folder = corpus.write(Path(place))
        case.make(folder)
        found = answer(folder, command, case.environment)
        return found, found.shown(folder)


def page() -> str:
    """Return the page as Markdown."""
    lines = [INTRODUCTION]
    for title, cases in GROUPS.items():
        lines.append(f"## {title}\n\n| input | command | what the user reads |\n|---|---|---|")
        for case in cases:
            _, text = played(case.name, case.command)
            name = f"{case.name}{' (found by `fedray data`)' if case.data else ''}"
            lines.append(f"| {_cell(name)} | {_code(case.command)} | {_code(_message(text))} |")
        lines.append("")
    return "\n".join(lines)


def _message(text: str) -> str:
    """Return the message alone, without tables or usage before it."""
    if ACCEPTED in text:
        return "(the run continues without the file)"
    lines = text.splitlines()
    begins = ("fedray", "Problems found: ")
    first = next((place for place, line in enumerate(lines) if line.startswith(begins)), 0)
    return " ".join(" ".join(lines[first:]).removeprefix("fedray: ").split())


def _code(text: str) -> str:
    short = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return f"<code>{_cell(short)}</code>"


def _cell(text: str) -> str:
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("*", "&#42;"), ("_", "&#95;")):
        text = text.replace(sign, name)
    for sign in "[]{}$\\":
        text = text.replace(sign, f"&#{ord(sign)};")
    return text
