"""The command line: fedray run | resume | watch | stop | pretrain | sweep | report | data | doctor.

Exit status: 0 fine, 1 the run failed or is not finished, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from fedray.commands import parse
from fedray.core.metrics import ALONE
from fedray.core.types import RunError
from fedray.tokens import show_token

if TYPE_CHECKING:
    from fedray import Result
    from fedray.engine.attach import Standing
    from fedray.engine.folder import RunFolder

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    show_token()
    try:
        return COMMANDS[options.command](options)
    except ValueError as error:
        print(f"fedray: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"fedray: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fedray: interrupted; what is in the cache stays there, and a run goes on with `fedray resume`", file=sys.stderr)
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    from fedray import experiment, runs
    from fedray.engine import session

    overrides = [*options.overrides, *([f"seed={options.seed}"] if options.seed is not None else [])]
    if options.dry_run:
        import yaml

        from fedray.core.config import plain

        config, _ = experiment.load(options.config, overrides)
        print(yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True), end="")
        return 0
    if options.detach and not session.outside():
        config = experiment.with_absolute_paths(experiment.load(options.config, overrides)[0])
        where = runs.new_place(config.name, options.out)
        return _leave_running(["run", options.config, *overrides, "--out", str(where)], where)
    result = experiment.run(options.config, overrides, out=options.out, detach=options.detach)
    return _ended(result)


def _resume(options: argparse.Namespace) -> int:
    from fedray import experiment, runs
    from fedray.engine import session
    from fedray.engine.folder import RunFolder

    if options.detach and not session.outside():
        where = runs.place(options.folder)
        experiment.reopen(RunFolder(where), options.overrides)
        return _leave_running(["resume", str(where), *options.overrides], where)
    result = experiment.resume(options.folder, options.overrides, detach=options.detach)
    return _ended(result)


def _leave_running(arguments: list[str], where: Path | str) -> int:
    """The command without --detach, with a Ray of its own, in the background."""
    from fedray.engine import attach
    from fedray.engine.folder import RunFolder

    folder = RunFolder(where)
    log = (folder.root or Path("runs") / Path(folder.place).name) / "log.txt"

    def say(words: str) -> None:
        print(words, end="", file=sys.stderr, flush=True)

    status = attach.leave_running([sys.executable, "-m", "fedray.cli", *arguments], folder, log, say)
    if status is not None:
        return status if status >= 0 else 1
    return _detached(folder.place, log)


def _detached(place: str, log: Path | None = None) -> int:
    print(f"run folder: {place}")
    if log is not None:
        print(f"what it says: {log}")
    print(f"fedray watch {quote(place)}  # shows how it goes")
    print(f"fedray stop {quote(place)}  # ends it after its round, with a checkpoint")
    return 0


def _watch(options: argparse.Namespace) -> int:
    from fedray.engine import attach
    from fedray.engine.progress import Display

    folder = _folder(options)
    try:
        if (run := attach.find(folder)) is not None:
            with Display.for_terminal() as display:
                run.watch(display)
    except KeyboardInterrupt:
        print(f"fedray: watching no longer; the run goes on, `fedray stop {quote(folder.place)}` ends it", file=sys.stderr)
        return INTERRUPTED
    standing = attach.standing(folder)
    _tell(folder, standing)
    return 0 if standing.state == "finished" else 1


def _stop(options: argparse.Namespace) -> int:
    from fedray.engine import attach
    from fedray.engine.progress import Display

    folder = _folder(options)
    if (run := attach.find(folder)) is not None:
        run.stop(options.now)
        when = "at once" if options.now else "after its round, with a checkpoint"
        print(f"{folder.place} ends {when}", file=sys.stderr, flush=True)
        if options.no_wait:
            return 0
        try:
            with Display.for_terminal() as display:
                run.watch(display, past=False)
        except KeyboardInterrupt:
            print("fedray: waiting no longer; the run ends all the same", file=sys.stderr)
            return INTERRUPTED
    standing = attach.standing(folder)
    _tell(folder, standing)
    return 0 if standing.state in ("finished", "stopped") else 1


def _pretrain(options: argparse.Namespace) -> int:
    from fedray.engine.progress import Display
    from fedray.pretraining import pretrain

    try:
        with Display.for_terminal() as display:
            found = pretrain(options.config, options.overrides, out=options.out, progress=display.progress, say=display.say)
    except KeyboardInterrupt:
        print("fedray: interrupted; the same command goes on behind its last checkpoint", file=sys.stderr)
        return INTERRUPTED
    print(f"{found.epochs} epochs, loss {found.loss:.4f}")
    print(f"Start from its weights with: model.init={quote(str(found.weights))}")
    return 0


def _folder(options: argparse.Namespace) -> RunFolder:
    from fedray import runs
    from fedray.engine.folder import RunFolder

    return RunFolder(runs.place(options.folder))


def _report(options: argparse.Namespace) -> int:
    from fedray import report

    found = report.read(options.paths, baseline=options.baseline, metric=options.metric, group_by=options.group_by)
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no edge
        console.width = 240
    console.print(found.table(console))
    print(f"report: {found.save(options.out)}")
    return 0


def _data(options: argparse.Namespace) -> int:
    if options.study is not None:
        from fedray.heterogeneity import StudySettings, study

        other, *overrides = options.study
        out = options.out or f"runs/data-{Path(options.config).stem}-{Path(other).stem}"
        given = {name: getattr(options, name) for name in ("clients", "utterances", "embeddings")}
        settings = StudySettings(**{name: value for name, value in given.items() if value is not None})
        print(f"report: {study((options.config, options.overrides), (other, overrides), Path(out), settings)}")
        return 0
    from fedray.overview import show

    problems = show(options.config, options.overrides, Console())
    return 1 if any(problem.stops for problem in problems) else 0


def _sweep(options: argparse.Namespace) -> int:
    if not Path(options.file).is_file():
        raise ValueError(f"there is no file {options.file}")
    sys.argv = [options.file, *options.arguments]
    runpy.run_path(options.file, run_name="__main__")  # it exits with its own status
    return 0


def _doctor(options: argparse.Namespace) -> int:
    if options.estimate is not None:
        from fedray.doctor import estimate

        return estimate.show(options.estimate, options.overrides, Console())
    from fedray import doctor

    return doctor.show(Console())


COMMANDS = {
    "run": _run,
    "resume": _resume,
    "watch": _watch,
    "stop": _stop,
    "pretrain": _pretrain,
    "sweep": _sweep,
    "report": _report,
    "data": _data,
    "doctor": _doctor,
}


def _tell(folder: RunFolder, standing: Standing) -> None:
    """What has become of a run in whose folder nobody is at work."""
    done = f"after round {standing.round}" if standing.round else "before round 1"
    if standing.state == "finished":
        _table(folder.place, standing.results)
    elif standing.state == "failed":
        print(f"Failed {done}: {standing.error}")
        print(f"The traceback is in {folder.storage.shown('error.txt')}. Go on with: fedray resume {quote(folder.place)}")
    else:
        print(f"{standing.state.capitalize()} {done}. Go on with: fedray resume {quote(folder.place)}")


def _ended(result: Result) -> int:
    """The end of a run that this process has watched, or left to itself."""
    from fedray.engine.folder import RunFolder

    place, results = RunFolder(result.folder).place, result.results
    if not results:
        return _detached(place)
    if "stopped" in results:
        done = f"after round {results['stopped']}" if results["stopped"] else "before round 1"
        print(f"Stopped {done}. Go on with: fedray resume {quote(place)}")
        return INTERRUPTED
    _table(place, results)
    return 0


def _table(place: str, results: Mapping[str, Any]) -> None:
    console = Console()
    table = Table(title=f"{results['name']}: {results['rounds']} rounds", title_justify="left")
    table.add_column("")
    for title in ("seed model", f"best round ({results['best']['round']})", "change"):
        table.add_column(title, justify="right")
    for name in (name for name in results["best"] if name != "round"):
        before, after = results["seed"][name], results["best"][name]
        change = f"{100 * (after - before) / before:+.1f} %" if before else ""
        table.add_row(_with_unit(name), f"{before:.2f}", f"{after:.2f}", change)
    console.print(table)
    if own := results.get("own"):
        _own_table(console, own)
    console.print(
        f"traffic {results['traffic/total_bytes'] / 1e9:.3f} GB, failed clients {results['clients/failed']:g}, "
        f"time {results['time/total_s']:.0f} s\n"
        f"run folder: {place}",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


def _own_table(console: Console, own: Mapping[str, Any]) -> None:
    """Means and deviations over clients; where a score was taken twice, with what is the client's own and alone, both side by side."""
    table = Table(title=f"own models of {own['clients']} clients", title_justify="left")
    names = [name for name in own if f"{name}_sd" in own and not name.endswith(ALONE)]
    twice = any(name + ALONE in own for name in names)
    for title in ("", "alone", "own") if twice else ("", "own"):
        table.add_column(title, justify="right" if title else "left")
    for name in names:
        scores = [f"{own[key]:.2f} ± {own[f'{key}_sd']:.2f}" if key in own else "" for key in (name + ALONE, name)]
        table.add_row(_with_unit(name), *scores[not twice :])
    console.print(table)


def _with_unit(name: str) -> str:
    return f"{name} (%)" if name.rpartition("/")[2].startswith(("wer", "cer")) else name


if __name__ == "__main__":
    sys.exit(main())
