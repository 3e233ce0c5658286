"""The arguments of `fedray devices`."""

from __future__ import annotations

import argparse

from fedray.cli.parsing import Commands, command

# Options of `fedray devices --convert`.
CONVERTED = (
    ("latency", "S", "latency of every device, where the trace has none (default: 0)"),
    ("watts", "W", "power of every device that computes, where the trace has none (default: 0)"),
    ("radio", "W", "power of every device that sends or receives, where the trace has none (default: 0)"),
    ("scale", "X", "factor on the trace's seconds for one pass over an utterance (default: 1)"),
)


def add_to(commands: Commands) -> None:
    """Add `fedray devices`."""
    devices = command(
        commands,
        "devices",
        "show the devices of a configuration, or convert a trace of devices",
        "Show what devices the clients of a configuration have, when they are available and how long a trip takes. "
        "Nothing is trained. Or convert a trace to Parquet files, which a configuration names. No pickle is executed.",
        "fedray devices devices/fednst_rounds devices.spread=1.5 --out phones",
    )
    devices.add_argument(
        "config",
        nargs="?",
        metavar="CONFIG",
        help="a YAML file, or a name that `fedray configs` lists, such as devices/fednst_rounds",
    )
    devices.add_argument("overrides", nargs="*", metavar="key=value", help="dotted overrides, such as devices.spread=1")
    devices.add_argument(
        "--convert",
        nargs="+",
        metavar=("KIND", "FILE"),
        help="convert a trace: fedscale, flash or table (csv, tsv), and one or two files of it",
    )
    devices.add_argument(
        "--out", metavar="PATH", help="a folder for a picture of the devices; with --convert the file .parquet"
    )
    for name, unit, says in CONVERTED:
        devices.add_argument(f"--{name}", type=float, metavar=unit, help=says)


def problem(options: argparse.Namespace) -> str | None:
    """Why the options cannot be combined; None: they can."""
    if (options.config is None) == (options.convert is None):
        return "devices takes either CONFIG or --convert KIND FILE"
    given = [name for name, *_ in CONVERTED if getattr(options, name) is not None]
    if options.convert is None and given:
        return f"--{given[0]} needs --convert KIND FILE"
    if options.convert is not None and options.out is None:
        return "--convert needs --out FILE.parquet"
    return None
