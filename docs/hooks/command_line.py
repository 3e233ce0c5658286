"""The page of the command line, from its parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docs.hooks.docstrings import escaped
from fedray.cli import arguments


def pages() -> dict[str, str]:
    """Place in the site -> Markdown."""
    return {"reference/command-line.md": "\n".join(_page())}


def _page() -> Iterator[str]:
    front = arguments.command_line()
    (commands,) = (action for action in front._actions if isinstance(action, argparse._SubParsersAction))
    yield f"# Command line\n\n{front.description} `fedray COMMAND --help` prints the same.\n"
    yield "| command | what |\n|---|---|"
    for choice in commands._choices_actions:
        yield f"| [`{choice.dest}`](#fedray-{choice.dest}) | {choice.help} |"
    for name, parser in commands.choices.items():
        yield f"\n## fedray {name}\n\n{parser.description}\n\n```\n{parser.format_usage().strip()}\n```\n"
        yield f"{parser.epilog.replace('example:', 'Example:').replace(chr(10), chr(10) * 2)}\n"
        yield "| argument | what |\n|---|---|"
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction):
                yield f"| `{_written(action)}` | {escaped(action.help or '')} |"
    yield "\nOptions of a sweep are in `python sweeps/NAME.py --help`."


def _written(action: argparse.Action) -> str:
    """An argument as a user writes it."""
    names = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or action.dest,)
    values = " ".join(str(name) for name in names) if action.nargs != 0 else ""
    return f"{action.option_strings[-1]} {values}".strip() if action.option_strings else values
