"""The command line: each command of `fedray --help`, started by `main`.

Exit status: 0 fine, 1 the run failed or is not finished, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import Console

from fedray.cli import completion, outcome, starting
from fedray.cli.arguments import command_line, parse
from fedray.cli.outcome import INTERRUPTED
from fedray.config import shipped
from fedray.config.source import as_value
from fedray.core.types import RunError
from fedray.core.words import words
from fedray.engine.ray_auth import show_token

if TYPE_CHECKING:
    from fedray.runs.folder import RunFolder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 success, 1 failed or unfinished, 2 bad input, 130 interrupted."""
    options = parse(arguments)
    show_token()
    try:
        return COMMANDS[options.command](options)
    except BrokenPipeError:  # as with `fedray ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more can be printed there
        return 1
    except (ValueError, OSError) as error:
        print(f"fedray: {words(error)}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"fedray: {words(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fedray: interrupted; caches are kept, and `fedray resume` resumes a run that has begun", file=sys.stderr)
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    from fedray import experiment
    from fedray.engine import session
    from fedray.runs import places

    overrides = [*options.overrides, *([f"seed={options.seed}"] if options.seed is not None else [])]
    if options.dry_run:
        import yaml

        from fedray.config.schema import plain
        from fedray.experiment.checks import corpus_reader

        config, source = experiment.load(options.config, overrides)
        experiment.check(config, source)
        experiment.tell_replaced(config, source)
        values = plain(config)
        values["data"]["options"] = plain(corpus_reader(config.data, source))
        print(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), end="")
        return 0
    if options.detach and not session.outside():
        config = experiment.check(*experiment.load(options.config, overrides))
        where = places.new_place(config.name, options.out)
        return _leave_running(["run", options.config, *overrides, "--out", str(where)], where)
    result = experiment.run(options.config, overrides, out=options.out, detach=options.detach)
    return outcome.show_end(result)


def _resume(options: argparse.Namespace) -> int:
    from fedray import experiment
    from fedray.engine import session
    from fedray.runs import places
    from fedray.runs.folder import RunFolder

    if options.detach and not session.outside():
        where = places.place(options.folder)
        experiment.reopen(RunFolder(where), options.overrides)
        accept = ["--accept-changes"] * options.accept_changes
        return _leave_running(["resume", str(where), *options.overrides, *accept], where)
    result = experiment.resume(
        options.folder, options.overrides, detach=options.detach, accept_changes=options.accept_changes
    )
    return outcome.show_end(result)


def _leave_running(arguments: list[str], where: Path | str) -> int:
    """Start the command without --detach in the background, with its own Ray."""
    from fedray.engine import attach
    from fedray.runs.folder import RunFolder

    folder = RunFolder(where)
    log = (folder.root or Path("runs") / Path(folder.place).name) / "log.txt"

    def say(words: str) -> None:
        print(words, end="", file=sys.stderr, flush=True)

    status = attach.leave_running([sys.executable, "-m", "fedray.cli", *arguments], folder, log, say)
    if status is not None:
        return status if status >= 0 else 1
    return outcome.detached(folder.place, log)


def _watch(options: argparse.Namespace) -> int:
    from fedray.engine import attach
    from fedray.engine.telemetry.progress import Display

    folder = _folder(options)
    try:
        if (run := attach.find(folder)) is not None:
            with Display.for_terminal() as display:
                run.watch(display)
    except KeyboardInterrupt:
        print(
            f"fedray: stopped watching; the run goes on, `fedray stop {quote(folder.place)}` ends it", file=sys.stderr
        )
        return INTERRUPTED
    standing = attach.standing(folder)
    outcome.show_standing(folder, standing)
    return 0 if standing.state == "finished" else 1


def _stop(options: argparse.Namespace) -> int:
    from fedray.engine import attach
    from fedray.engine.telemetry.progress import Display

    folder = _folder(options)
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
                outcome.show_standing(folder, attach.standing(folder))
                return 0
        except KeyboardInterrupt:
            print("fedray: stopped waiting; the run still ends", file=sys.stderr)
            return INTERRUPTED
    standing = attach.standing(folder)
    outcome.show_standing(folder, standing)
    return 0 if standing.state in ("finished", "stopped") else 1


def _pretrain(options: argparse.Namespace) -> int:
    from fedray.engine.telemetry.progress import Display
    from fedray.experiment.pretraining import pretrain

    try:
        with Display.for_terminal() as display:
            found = pretrain(
                options.config, options.overrides, out=options.out, progress=display.progress, say=display.say
            )
    except KeyboardInterrupt:
        print("fedray: interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        return INTERRUPTED
    print(f"{found.epochs} epochs, loss {found.loss:.4f}")
    print(f"Start from its weights with: model.init={quote(as_value(str(found.weights)))}")
    return 0


def _folder(options: argparse.Namespace) -> RunFolder:
    from fedray.runs import places
    from fedray.runs.folder import RunFolder

    return RunFolder(places.place(options.folder))


def _report(options: argparse.Namespace) -> int:
    from fedray import report

    asked = {name: getattr(options, name) for name in ("baseline", "metric", "group_by", "target")}
    found = report.read(options.paths, **asked)
    console = _console()
    for table in (found.table(console), *found.further_tables(console)):
        console.print(table)
    print(f"report: {found.save(options.out)}")
    return 0


def _console() -> Console:
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width
        console.width = 240
    return console


def _export(options: argparse.Namespace) -> int:
    from fedray.experiment.handover import to_onnx

    file, difference = to_onnx(options.folder)
    print(f"{file}: differs from the model by at most {difference:.1e}")
    return 0


def _data(options: argparse.Namespace) -> int:
    from fedray.cli import corpus

    return corpus.show(options)


def _privacy(options: argparse.Namespace) -> int:
    from fedray.cli import privacy

    return privacy.show(options, _console())


def _devices(options: argparse.Namespace) -> int:
    if options.convert is not None:
        from fedray.cli import traces

        return traces.convert(options)
    from fedray.cli import devices

    return devices.show(options, _console())


def _sweep(options: argparse.Namespace) -> int:
    file = str(shipped.locate("sweeps", options.file))
    sys.argv = [file, *options.arguments]
    try:
        runpy.run_path(file, run_name="__main__")  # a sweep's file ends with sys.exit
    except SyntaxError as error:
        raise ValueError(f"{error.filename}:{error.lineno}: is not Python: {error.msg}") from error
    return 0


def _doctor(options: argparse.Namespace) -> int:
    if options.estimate is not None:
        from fedray.doctor import estimate

        return estimate.show(options.estimate, options.overrides, Console())
    from fedray import doctor

    return doctor.show(Console())


def _cache(options: argparse.Namespace) -> int:
    from fedray.cli import caches
    from fedray.storage.cache import cache_root

    return caches.show(options, cache_root().resolve(), _console())


def _configs(options: argparse.Namespace) -> int:
    return starting.show("configs", options.filter, _console())


def _sweeps(options: argparse.Namespace) -> int:
    return starting.show("sweeps", options.filter, _console())


def _new(options: argparse.Namespace) -> int:
    from fedray.cli import project

    print(project.write(Path(options.folder), options.config), end="")
    return 0


def _completion(options: argparse.Namespace) -> int:
    print(completion.script(command_line(), options.shell))
    return 0


COMMANDS = {
    "configs": _configs,
    "sweeps": _sweeps,
    "new": _new,
    "run": _run,
    "resume": _resume,
    "watch": _watch,
    "stop": _stop,
    "pretrain": _pretrain,
    "sweep": _sweep,
    "report": _report,
    "export": _export,
    "data": _data,
    "privacy": _privacy,
    "devices": _devices,
    "doctor": _doctor,
    "cache": _cache,
    "completion": _completion,
}


if __name__ == "__main__":
    sys.exit(main())
