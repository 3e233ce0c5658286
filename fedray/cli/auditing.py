"""`fedray data`: the audit of audio against text as a table, a picture, and commands that show its outliers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from shlex import quote

from rich.console import Console

from fedray.cli.tables import titled
from fedray.core.texts import rich_text
from fedray.core.words import words
from fedray.data.analysis.audit import Audit
from fedray.data.analysis.inspection import Parts, Problem
from fedray.data.manifest import Rows
from fedray.engine.driver import session
from fedray.experiment import Config
from fedray.report import audit_picture
from fedray.storage.claims import claim
from fedray.storage.local import LocalStorage, on_disk

PICTURE = "audit.png"


def audit(
    config: Config,
    parts: Parts,
    clients: Mapping[str, Rows],
    broken: Collection[str],
    out: str | None,
    console: Console,
) -> list[Problem]:
    """Print the table and write the picture to `out`; returns the problems.

    `broken`: paths of audio that is named already.
    """
    data, rate = config.data, config.features.sample_rate
    found = Audit.of(parts, clients, session.parallel, data.seed, rate, broken, not data.skip_broken)
    rows, problems = found.findings()
    title = f"Audio and text: {len(found.heard):,} of {len(found.manifest):,} utterances decoded"
    table = titled(title, "", "", show_header=False)
    for name, text in rows:
        table.add_row(rich_text(name), rich_text(text))
    console.print(table)
    if out is not None:
        console.print(rich_text(_drawn(found, config.name, out)), highlight=False, soft_wrap=True)
    return problems


def _drawn(found: Audit, name: str, out: str) -> str:
    folder = on_disk(out)
    try:
        claim(LocalStorage(folder), "an audit of data")
        return f"Picture: {audit_picture.save(found, name, folder / PICTURE)}"
    except OSError as error:  # a folder that cannot be written: the table stands without the picture
        return f"No picture: {words(error)}. Name another folder with --out"


def look(config: str, overrides: Collection[str], names: Collection[str]) -> str:
    """The command that shows these utterances or clients."""
    return " ".join(["fedray data", *map(quote, (config, *overrides)), "--show look --only", *map(quote, names)])
