"""`python sweeps/NAME.py [options] [key=value ...]`: prepares a sweep, runs all trials, writes the report."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from shlex import quote
from typing import Any

from ray.tune import ResultGrid

from fedray import report
from fedray.config.source import as_value
from fedray.core.privacy.settings import Private
from fedray.core.types import RunError
from fedray.core.words import words
from fedray.engine import session
from fedray.engine.telemetry.trackers import Card, MLflow
from fedray.engine.telemetry.tracking import Tracking
from fedray.experiment import Config, build_data
from fedray.report.sweep_description import NAME as DESCRIPTION
from fedray.runs import places
from fedray.runs.folder import RunFolder
from fedray.sweep import tuning
from fedray.sweep.prepare import prepare, pretrained, transcripts
from fedray.sweep.reserve import reserve
from fedray.sweep.space import Space, combinations, for_search, grid_values, shown, smoke
from fedray.sweep.study import Study, Sweep, check_space, find, read_bases, with_files

INTERRUPTED = 130
DRAWS = 8  # default number of trials of a random or optuna search


def main(sweep: Sweep, arguments: Sequence[str] | None = None) -> int:
    """Run a sweep; returns the exit status: 0 success, 1 failed or unfinished trials, 2 bad input, 130 interrupted."""
    try:
        options = _parse(sweep, arguments)
        return _sweep(sweep, options)
    except (ValueError, OSError) as error:
        print(f"{sweep.name}: {words(error)}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"{sweep.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{sweep.name}: interrupted; the same command with --resume continues", file=sys.stderr)
        return INTERRUPTED


def _parse(sweep: Sweep, arguments: Sequence[str] | None) -> argparse.Namespace:
    swept = "\n".join(f"  {key}: {shown(domain)}" for key, domain in sweep.space.items())
    better = "larger" if sweep.direction == "max" else "smaller"
    parser = argparse.ArgumentParser(
        description=f"{sweep.question}\n\nSwept:\n{swept}\n\nMetric: {sweep.metric} ({better} is better)",
        epilog="example:\n  %(prog)s --smoke rounds=5",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="dotted overrides for all trials; not for swept keys"
    )
    parser.add_argument("--out", metavar="DIR", help=f"folder or URI of the experiment (default: runs/{sweep.name})")
    samples = f"trials of a random search (default: {DRAWS}), or repetitions of a grid (default: {sweep.samples})"
    parser.add_argument("--num-samples", type=int, metavar="N", help=samples)
    parser.add_argument(
        "--scheduler", choices=tuning.SCHEDULERS, help="asha stops bad trials early, pbt mutates keys (default: fifo)"
    )
    parser.add_argument(
        "--search", choices=tuning.SEARCHES, help="default: grid if all keys have lists of values, else random"
    )
    parser.add_argument("--max-concurrent", type=int, metavar="N", help="trials at a time (default: one per core)")
    parser.add_argument("--resume", action="store_true", help="continue: finished trials stay, failed ones run again")
    parser.add_argument(
        "--accept-changes",
        action="store_true",
        help="with --resume: continue even if packages, code or processor have changed; the report says so",
    )
    parser.add_argument("--smoke", action="store_true", help="run two small trials as a test")
    options = parser.parse_intermixed_args(arguments)
    for override in options.overrides:
        if "=" not in override:
            parser.error(f"{override}: overrides are key=value")
    if options.accept_changes and not options.resume:
        parser.error("--accept-changes needs --resume: a new sweep has nothing that could have changed")
    for name in ("num_samples", "max_concurrent"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return options


@dataclass(frozen=True)
class Choices:
    """sweep.json: the sweep, and the command-line choices that its trials depend on."""

    name: str
    question: str
    keys: list[str]
    metric: str
    mode: str
    reference: str | None
    figures: list[dict[str, Any]]
    search: str
    scheduler: str
    samples: int
    smoke: bool
    overrides: list[str]
    folder: str
    bases: dict[str, dict[str, Any]]


def _sweep(sweep: Sweep, options: argparse.Namespace) -> int:
    place = places.place(options.out) if options.out is not None else places.usual_place(sweep.name)
    folder = RunFolder(place)
    chosen = _earlier(sweep, folder, options) if options.resume else _chosen(sweep, folder, options)
    sweep = _with_files(sweep, chosen)
    space = smoke(sweep.space) if chosen.smoke else for_search(sweep.space, chosen.search)
    study = Study(
        os.fspath(place),
        sweep.base,
        chosen.bases,
        sweep.names,
        [*sweep.settings, *(sweep.small if chosen.smoke else ())],
        chosen.overrides,
        chosen.folder,
        sweep.metric,
        tuning.KEEP,
        fixed=["engine.checkpoint_every=1"],  # Tune may come back to the checkpoint of any round
        accept_changes=options.accept_changes,
    )
    first = study.check(space)
    if chosen.scheduler == "pbt" and isinstance(first.privacy, Private):
        raise ValueError(
            "--scheduler pbt continues from another trial's model, which privacy accounting does not cover: choose "
            "fifo or asha"
        )
    uri = str(first.tracker.uri) if isinstance(first.tracker, MLflow) else ""
    if uri:  # found in the environment of this process, which trials do not see
        study = replace(study, fixed=[*study.fixed, f"tracker.uri={as_value(uri)}"])
    session.connect()
    if uri.startswith("sqlite:") and len(session.resources()) > 1:
        raise ValueError(f"tracker.uri={uri} is a file, and trials run on several machines: name an MLflow server")
    study, at_once = _reserved(study, space, first, chosen.samples, options.max_concurrent or sweep.at_once)
    if folder.root is not None:
        folder.root.mkdir(parents=True, exist_ok=True)
    with folder.locked():
        folder.write_json(DESCRIPTION, asdict(chosen))
        began = options.resume and folder.exists(tuning.STATE)
        if not began:  # a resumed sweep too, if it was killed before its first trial
            prepare(study, space, at_once)
        plan = tuning.Plan(space, chosen.search, chosen.scheduler, chosen.samples, at_once, first.rounds)
        with _tracked(sweep, folder, first) as parent:
            study = replace(study, parent=parent)
            results = (tuning.again(study, plan) if began else tuning.tuner(sweep, study, plan)).fit()
            return _ended(sweep, folder, results)


def _with_files(sweep: Sweep, chosen: Choices) -> Sweep:
    """The sweep with the files that its trials start from. Those that do not exist yet are made in runs/."""
    files, place, near = {}, Path(chosen.folder, "runs"), Path(sys.argv[0])
    if sweep.pretrain is not None:
        short = ["contrastive.epochs=1"] * chosen.smoke
        folder = place / ("pretrained-smoke" if chosen.smoke else "pretrained")
        files["pretrained"] = str(pretrained(find(sweep.pretrain, near), folder, short))
    if sweep.text is not None:
        session.connect()
        files["text"] = str(transcripts(find(sweep.text, near), chosen.overrides, place / f"{sweep.name}.txt"))
    return with_files(sweep, files)


@contextmanager
def _tracked(sweep: Sweep, folder: RunFolder, first: Config) -> Iterator[str | None]:
    """Record the sweep in the tracker of its trials, with the report at the end. Yields the sweep's id there."""
    name = Path(folder.place).name
    card = Card(name, {"question": sweep.question, "keys": list(sweep.space)}, {"name": sweep.name}, sweep=name)
    tracking = Tracking(first.tracker, card, folder, lambda text: print(f"{sweep.name}: {text}", file=sys.stderr))
    tracking.begin()
    try:
        yield tracking.id()
    except BaseException:
        tracking.close("stopped")
        raise
    tracking.close("finished")


def _chosen(sweep: Sweep, folder: RunFolder, options: argparse.Namespace) -> Choices:
    """The choices of a new sweep. Raises ValueError if the folder is not free, or the space cannot be swept."""
    if folder.exists(DESCRIPTION):
        resume = f"continue it with --resume --out {quote(folder.place)}"
        raise ValueError(f"{folder.place} holds a sweep already: {resume}, or choose another folder with --out")
    folder.check_free()
    check_space(sweep, options.overrides)
    grid = all(grid_values(domain) is not None for domain in sweep.space.values()) and options.scheduler != "pbt"
    search = options.search or ("grid" if grid else "random")
    samples = options.num_samples or (sweep.samples if search == "grid" else max(sweep.samples, DRAWS))
    return Choices(
        name=sweep.name,
        question=sweep.question,
        keys=list(sweep.space),
        metric=sweep.metric,
        mode=sweep.direction,
        reference=sweep.reference,
        figures=[figure.described() for figure in sweep.figures],
        search=search,
        scheduler=options.scheduler or "fifo",
        samples=1 if options.smoke else samples,
        smoke=options.smoke,
        overrides=options.overrides,
        folder=os.getcwd(),
        bases=read_bases(sweep, Path(sys.argv[0])),
    )


def _earlier(sweep: Sweep, folder: RunFolder, options: argparse.Namespace) -> Choices:
    """The choices of the sweep that the folder holds.

    Raises ValueError if it holds none, or another one, or the command line asks for other choices.
    """
    if not folder.exists(DESCRIPTION):
        raise ValueError(f"{folder.place} holds no sweep to continue: leave out --resume")
    values = folder.read_json(DESCRIPTION)
    if missing := [field.name for field in fields(Choices) if field.name not in values]:
        raise ValueError(
            f"{folder.storage.shown(DESCRIPTION)}: has no {missing[0]!r}: it is damaged, or of an older fedray; "
            "restore it, or begin a new sweep with another --out"
        )
    chosen = Choices(**{field.name: values[field.name] for field in fields(Choices)})
    if (chosen.name, chosen.keys) != (sweep.name, list(sweep.space)):
        raise ValueError(
            f"{folder.place} holds the sweep {chosen.name} of {', '.join(chosen.keys)}: choose another --out"
        )
    given = {"search": options.search, "scheduler": options.scheduler, "overrides": options.overrides or None}
    given |= {"smoke": options.smoke or None, "samples": None if chosen.smoke else options.num_samples}
    for name, value in given.items():
        if value is not None and value != (before := getattr(chosen, name)):
            raise ValueError(
                f"{folder.place} holds a sweep with {name}={before!r}, not {value!r}: --resume continues with the "
                "sweep's own choices; leave this one out, or begin a new sweep with another --out"
            )
    return chosen


def _reserved(study: Study, space: Space, config: Config, samples: int, most: int | None) -> tuple[Study, int]:
    """The study with the resources that each trial reserves, and how many trials run at once."""
    grids = [len(values) for domain in space.values() if (values := grid_values(domain)) is not None]
    population = None
    if config.engine.placement == "dedicated":
        data, _ = build_data(*study.config(next(combinations(space, []))))
        population = len(data.client_ids())
    share, at_once = reserve(config.engine, session.resources(), samples * math.prod(grids), most, population)
    return replace(study, share=share), at_once


def _ended(sweep: Sweep, folder: RunFolder, results: ResultGrid) -> int:
    for result in results:
        if result.error is not None:
            print(f"{sweep.name}: {result.path} failed: {result.error}", file=sys.stderr)
    left = len(results) - results.num_terminated
    if left:
        unfinished = f"{left} of {len(results)} trials are not finished"
        print(f"{sweep.name}: {unfinished}: the same command with --resume continues", file=sys.stderr)
    if results.num_terminated:
        page = report.write([folder.place])
        print(f"report: {page}")
    if folder.root is not None:  # Tune's own line names a temporary folder
        print(f"curves: tensorboard --logdir {quote(folder.place)}")
    print(f"experiment: {folder.place}")
    return 1 if left else 0
