"""`fedray runs`, `watch` and `stop`: the runs of this machine, and the driver of one of them."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from fedray.cli import outcome
from fedray.cli.outcome import INTERRUPTED
from fedray.cli.parsing import Commands, command
from fedray.core.texts import printable, rich_text

if TYPE_CHECKING:
    from fedray.runs.folder import RunFolder

LAST_PORT = 65535


def add_to(commands: Commands) -> None:
    """Add the command that lists runs, and those that attach to one in progress."""
    runs = command(
        commands,
        "runs",
        "list runs: which are running, which have ended",
        "List the runs in a folder or a bucket, the newest last: their state, round and last change.",
        "fedray runs",
    )
    runs.add_argument(
        "folder", nargs="?", metavar="DIR", help="a folder, or a URI, that holds runs (default: $FEDRAY_RUNS, or runs)"
    )
    watch = command(
        commands,
        "watch",
        "show the progress of a run",
        "Show the progress of a run until it ends, or how it ended. Ctrl-C stops watching, not the run. With --web, a "
        "page for the browser of this machine shows it: curves, cohorts, failures, the newest hypotheses; also of "
        "several runs, and of sweeps.",
        "fedray watch runs/mine --web",
    )
    watch.add_argument(
        "folders", nargs="+", metavar="RUN", help="a run folder; with --web several, or a sweep's folder"
    )
    watch.add_argument("--web", action="store_true", help="print the address of a page, and serve it until Ctrl-C")
    watch.add_argument("--port", type=_port, metavar="N", help="with --web: the page's port (default: a free one)")
    stop = command(
        commands,
        "stop",
        "end a run",
        "End a run after its current round, with a checkpoint, and wait for its end.",
        "fedray stop runs/mine",
    )
    stop.add_argument("folder", metavar="RUN", help="a run folder")
    stop.add_argument("--now", action="store_true", help="end at once; the current round is lost")
    stop.add_argument("--no-wait", action="store_true", help="return without waiting for the end")


def _port(text: str) -> int:
    """A port of --port; 0 is a free one. argparse.ArgumentTypeError: it is none."""
    if not text.isascii() or not text.isdigit() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: choose a number from 0 to {LAST_PORT}")
    return int(text)


def show(options: argparse.Namespace, console: Console) -> int:
    """Print a table of the runs in a folder; returns the exit status."""
    from fedray.report.discover import folders_below
    from fedray.runs import places
    from fedray.runs.folder import RunFolder

    place = places.usual_place("") if options.folder is None else places.place(options.folder)
    shown = RunFolder(place).place
    table = Table(box=None, header_style="bold")
    for title in ("run", "state", "round", "last change"):
        table.add_column(title, justify="right" if title == "round" else "left", no_wrap=True)
    found = [(_changed(folder), folder.place, folder) for folder, _ in folders_below(place)]
    for changed, where, folder in sorted(found, key=lambda run: run[:2]):
        when = datetime.fromtimestamp(changed).strftime("%Y-%m-%d %H:%M") if changed else ""
        within, _, _ = where.removeprefix(shown.partition("?")[0]).partition("?")
        name = within.strip("/") or where
        table.add_row(rich_text(name), *_state_and_round(folder), when)
    if not found:
        raise ValueError(f"{shown} holds no runs: name a folder that does")
    console.print(f"[bold]{rich_text(shown)}[/bold]", highlight=False, soft_wrap=True)
    console.print(table, highlight=False)
    return 0


def _changed(folder: RunFolder) -> float:
    """When the newest round was written, in seconds since the epoch; 0 on object storage."""
    from fedray.runs.folder import METRICS

    if folder.root is None:
        return 0.0
    return next(path.stat().st_mtime for path in (folder.root / METRICS, folder.root) if path.exists())


def _state_and_round(folder: RunFolder) -> tuple[str, str]:
    """`running` and `12 of 50`; damage is told in place of the state."""
    from fedray.runs.standing import READ, active, standing
    from fedray.runs.strangers import check_files, read_config

    try:
        check_files(folder, READ)
        ended = standing(folder)
        rounds = read_config(folder).get("rounds")
        if not isinstance(rounds, int):
            raise ValueError(f"{folder.storage.shown('config.yaml')}: rounds is not a number: restore it")
        state = active(folder) or ended.state
    except (ValueError, OSError) as error:
        return f"[red]{rich_text(printable(str(error)))}[/red]", ""
    return rich_text(printable(state)), f"{ended.round:,} of {rounds:,}"


def leave_running(arguments: list[str], where: Path | str) -> int:
    """Start the command without --detach in the background, with its own Ray."""
    from fedray.engine.driver import attach
    from fedray.runs.folder import RunFolder

    folder = RunFolder(where)
    log = (folder.root or Path("runs") / Path(folder.place).name) / "log.txt"

    def say(words: str) -> None:
        print(words, end="", file=sys.stderr, flush=True)

    status = attach.leave_running([sys.executable, "-m", "fedray.cli", *arguments], folder, log, say)
    if status is not None:
        return status if status >= 0 else 1
    return outcome.detached(folder.place, log)


def watch(options: argparse.Namespace) -> int:
    """Show a run until it ends; returns the exit status."""
    if options.web:
        return _serve(options)
    from fedray.engine.driver import attach
    from fedray.engine.telemetry.progress import Display
    from fedray.runs.standing import standing

    folder = _folder(options.folders[0])
    try:
        if (run := attach.find(folder)) is not None:
            with Display.for_terminal() as display:
                run.watch(display)
    except KeyboardInterrupt:
        print(
            f"fedray: stopped watching; the run continues, `fedray stop {quote(folder.place)}` ends it", file=sys.stderr
        )
        return INTERRUPTED
    ended = standing(folder)
    outcome.show_standing(folder, ended)
    return 0 if ended.state == "finished" else 1


def _serve(options: argparse.Namespace) -> int:
    """Serve the page of `fedray watch --web` until Ctrl-C; returns the exit status."""
    from fedray.live.server import Server
    from fedray.live.snapshot import Watched
    from fedray.runs import places

    os.nice(10)  # the run comes first
    with Server(Watched([places.place(folder) for folder in options.folders]), options.port or 0) as server:
        print(f"{server.url}\nOpen this address in a browser. Ctrl-C ends the page, not the run.")
        port, host = server.server_port, socket.gethostname()
        print(f"From another machine, first: ssh -L {port}:127.0.0.1:{port} {host}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0


def stop(options: argparse.Namespace) -> int:
    """End a run; returns the exit status."""
    from fedray.engine.driver import attach
    from fedray.engine.telemetry.progress import Display
    from fedray.runs.standing import standing

    folder = _folder(options.folder)
    if (run := attach.find(folder)) is not None:
        if answered := run.stop(options.now):
            when = "at once" if options.now else "after its round, with a checkpoint"
            print(f"{folder.place} ends {when}", file=sys.stderr, flush=True)
            if options.no_wait:
                return 0
        try:
            with Display.for_terminal() as display:
                ended = answered and run.watch(display, past=False, seconds=attach.NOW_SECONDS if options.now else None)
            if not ended:
                print(run.kill(answered), file=sys.stderr)
                outcome.show_standing(folder, standing(folder))
                return 0
        except KeyboardInterrupt:
            print("fedray: stopped waiting; the run still ends", file=sys.stderr)
            return INTERRUPTED
    how = standing(folder)
    outcome.show_standing(folder, how)
    return 0 if how.state in ("finished", "stopped") else 1


def _folder(name: str) -> RunFolder:
    """A run folder, which may come from anybody. ValueError: a file that `watch` and `stop` read leads out of it."""
    from fedray.runs import places
    from fedray.runs.folder import METRICS, RunFolder
    from fedray.runs.standing import READ
    from fedray.runs.strangers import check_files

    folder = RunFolder(places.place(name))
    check_files(folder, (*READ, METRICS))
    return folder
