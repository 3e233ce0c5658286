"""The command line: each command of `fedray --help`, started by `main`.

Exit status: 0 fine, 1 the run failed or is not finished, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

from rich.console import Console

from fedray.cli import attached, completion, outcome, stepping
from fedray.cli.arguments import command_line, parse
from fedray.cli.outcome import INTERRUPTED
from fedray.config import shipped
from fedray.config.source import as_value
from fedray.core.types import RunError
from fedray.core.words import words
from fedray.engine.cluster.ray_auth import show_token
from fedray.engine.driver.interrupts import Terminated, terminable

TERMINATED = 143  # exit status
KEPT = "interrupted; caches are kept"
BEGUN = ", and `fedray resume` continues a run that has begun"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status.

    0 success, 1 failed or unfinished, 2 bad input, 130 interrupted, 143 terminated.
    """
    options = parse(arguments)
    show_token()
    try:
        with terminable():
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
    except KeyboardInterrupt as error:
        print(f"fedray: {str(error) or KEPT + BEGUN * (options.command in ('run', 'resume'))}", file=sys.stderr)
        return TERMINATED if isinstance(error, Terminated) else INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    from fedray import experiment
    from fedray.engine.driver import session
    from fedray.runs import places

    overrides = [*options.overrides, *([f"seed={options.seed}"] if options.seed is not None else [])]
    if options.debug:
        return stepping.debug(options.config, overrides)
    if options.dry_run:
        from fedray.config.schema import plain
        from fedray.config.written import as_yaml
        from fedray.experiment.checks import corpus_reader

        config, source = experiment.load(options.config, overrides)
        experiment.check(config, source)
        experiment.tell_replaced(config, source)
        values = plain(config)
        values["data"]["options"] = plain(corpus_reader(config.data, source))
        print(as_yaml(values, source), end="")
        return 0
    if options.detach and not session.outside():
        config = experiment.check(*experiment.load(options.config, overrides))
        where = places.new_place(config.name, options.out)
        return attached.leave_running(["run", options.config, *overrides, "--out", str(where)], where)
    result = experiment.run(options.config, overrides, out=options.out, detach=options.detach)
    return outcome.show_end(result)


def _resume(options: argparse.Namespace) -> int:
    from fedray import experiment
    from fedray.engine.driver import session
    from fedray.runs import places
    from fedray.runs.folder import RunFolder

    if options.detach and not session.outside():
        where = places.place(options.folder)
        experiment.reopen(RunFolder(where), options.overrides)
        accept = ["--accept-changes"] * options.accept_changes
        return attached.leave_running(["resume", str(where), *options.overrides, *accept], where)
    result = experiment.resume(
        options.folder, options.overrides, detach=options.detach, accept_changes=options.accept_changes
    )
    return outcome.show_end(result)


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


def _report(options: argparse.Namespace) -> int:
    from fedray import report

    asked = {name: getattr(options, name) for name in ("baseline", "metric", "group_by", "target", "audio")}
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


def _sweep(options: argparse.Namespace) -> int:
    file = str(shipped.locate("sweeps", options.file))
    sys.argv = [file, *options.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))  # as Python does for a file it runs
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


def _new(options: argparse.Namespace) -> int:
    from fedray.cli import project

    print(project.write(Path(options.folder), options.config), end="")
    return 0


def _completion(options: argparse.Namespace) -> int:
    print(completion.script(command_line(), options.shell))
    return 0


def _show(options: argparse.Namespace) -> int:
    """A command whose module has `show(options, console)`, and is imported now: some take seconds."""
    converts = options.command == "devices" and options.convert is not None
    module = importlib.import_module(f"fedray.cli.{'traces' if converts else SHOWN[options.command]}")
    status: int = module.show(options, _console())
    return status


SHOWN = {
    "configs": "starting",
    "sweeps": "starting",
    "runs": "attached",
    "model": "model",
    "privacy": "privacy",
    "devices": "devices",
    "cache": "caches",
}
COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    **dict.fromkeys(SHOWN, _show),
    "new": _new,
    "run": _run,
    "resume": _resume,
    "watch": attached.watch,
    "stop": attached.stop,
    "pretrain": _pretrain,
    "sweep": _sweep,
    "report": _report,
    "export": _export,
    "data": _data,
    "doctor": _doctor,
    "completion": _completion,
}


if __name__ == "__main__":
    sys.exit(main())
