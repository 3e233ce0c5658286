"""`fedray configs`, `fedray sweeps` and `fedray new`: what comes with fedray, and a project that starts from it."""

from __future__ import annotations

import argparse
from itertools import groupby

from rich.console import Console
from rich.table import Table

from fedray.cli.parsing import Commands, command
from fedray.config import shipped
from fedray.core.texts import rich_text

DATA = "Embedded corpora need no data. Another corpus needs its folder: data.root=FOLDER."


def add_to(commands: Commands) -> None:
    """Add the commands for the configurations and sweeps that come with fedray, and for a project that uses them."""
    for kind, what in (("configs", "configurations"), ("sweeps", "sweeps")):
        listing = command(
            commands,
            kind,
            f"list the {what} that come with fedray",
            f"List the {what} that come with fedray, grouped by paper. Other commands take their names.",
            f"fedray {kind} fednst",
        )
        listing.add_argument("filter", nargs="?", default="", metavar="WORD", help="list those that contain this word")
    new = command(
        commands,
        "new",
        "write a project with an algorithm of your own",
        "Write a project into a new folder: a configuration, an algorithm of your own, a sweep, a test and a README. "
        "The algorithm starts as a variant of the algorithm of a configuration: of one that comes with fedray, or of "
        "your own.",
        "fedray new mine --from fednst/embedded",
    )
    new.add_argument("folder", metavar="DIR", help="the folder to write, which is new or empty")
    new.add_argument(
        "--from",
        dest="config",
        default="fednst/embedded",
        metavar="CONFIG",
        help="a YAML file, or a name that `fedray configs` lists (default: fednst/embedded)",
    )


def show(options: argparse.Namespace, console: Console) -> int:
    """Print the shipped `configs` or `sweeps` whose name or summary contains the word; returns the exit status."""
    kind, word = options.command, options.filter
    found = {name: shipped.summary(path) for name, path in shipped.files(kind).items()}
    found = {name: text for name, text in found.items() if word.lower() in f"{name} {text}".lower()}
    if not found:
        raise ValueError(f"no name or description contains {word!r}: `fedray {kind}` lists all")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=2 + max(map(len, found)))  # a narrow terminal cuts the next column
    table.add_column(no_wrap=True, overflow="ellipsis")
    for paper, names in groupby(found, key=paper_of):
        table.add_row(f"[bold]{paper}[/bold]")
        for name in names:
            table.add_row(f"  {name}", rich_text(found[name]))
    console.print(table, highlight=False)
    if kind == "configs":
        console.print(f"\n{DATA}", highlight=False)
    return 0


def paper_of(name: str) -> str:
    """The paper in a name: `fednst` in `fednst/baselines/sl` and in `fednst_lambda`."""
    return name.partition("/")[0].partition("_")[0]
