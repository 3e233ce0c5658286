"""`fedray completion`: a script that completes the command line in a shell."""

from __future__ import annotations

import argparse

from fedray.cli.parsing import Commands, command
from fedray.config import shipped

NAMES = "_fedray_{}"  # the shell's function that completes names of shipped configs or sweeps, and paths of files
FUNCTIONS = {
    "bash": '{function}() {{ compgen -W "{names}" -- "$1"; compgen -f -- "$1"; }}',
    "zsh": "{function}() {{ _alternative '{kind}:{kind}:({names})' 'files:file:_files'; }}",
}


def add_to(commands: Commands) -> None:
    """Add `fedray completion`."""
    completion = command(
        commands,
        "completion",
        "print completion for a shell",
        "Print a script that completes commands, options and names of configurations and sweeps in a shell.",
        'eval "$(fedray completion bash)"  # in ~/.bashrc, or with zsh in ~/.zshrc',
    )
    completion.add_argument("shell", choices=("bash", "zsh"), help="the shell")


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for `shell`. It holds the names of shipped configurations and sweeps as they are now."""
    import shtab

    places = {"CONFIG": NAMES.format("configs"), "SWEEP": NAMES.format("sweeps")}
    named = {metavar: {"bash": name, "zsh": name} for metavar, name in places.items()}
    complete = {**named, "FILE": shtab.FILE} | dict.fromkeys(("DIR", "RUN", "PATH"), shtab.DIRECTORY)
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for one in commands.choices.values():
        for action in one._actions:
            if action.metavar in complete:
                action.complete = complete[action.metavar]
    functions = [
        FUNCTIONS[shell].format(function=NAMES.format(kind), kind=kind, names=" ".join(shipped.files(kind)))
        for kind in shipped.ENDINGS
    ]
    return str(shtab.complete(parser, shell, preamble="\n".join(functions)))
