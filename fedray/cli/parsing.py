"""Helpers for the parsers of all commands."""

from __future__ import annotations

import argparse
import os
import re
import textwrap
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
WIDTH = 78  # of descriptions: argparse keeps the lines of an example, and so does not wrap descriptions


def at_home(argument: str) -> str:
    """The argument with the home folder in place of ~ at the start of a path: in --show=~/page, data.root=~/cv and ~/x.

    A shell replaces ~ at the start of an argument only, and a quoted one nowhere.
    """
    found = re.match(r"([\w.-]+=)?(?=~[\w.-]*/)", argument)
    return argument if found is None else found[0] + os.path.expanduser(argument[found.end() :])


def command(commands: Commands, name: str, says: str, description: str, example: str) -> argparse.ArgumentParser:
    """Add a command, with a line in `fedray --help`, and a description and an example in its own help."""
    return commands.add_parser(
        name,
        help=says,
        description="\n".join(textwrap.wrap(description, WIDTH)),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_config(command: argparse.ArgumentParser, example: str, overrides: str) -> None:
    """Add the arguments of a command that reads a configuration."""
    command.add_argument(
        "config",
        metavar="CONFIG",
        help=f"a YAML file, or a name that `fedray configs` lists, such as {example}",
    )
    command.add_argument("overrides", nargs="*", metavar="key=value", help=f"dotted overrides, such as {overrides}")
