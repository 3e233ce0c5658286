"""`python sweeps/NAME.py [options] [key=value ...]`: prepares a sweep, runs all trials, writes the report."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote

from ray.exceptions import RayTaskError
from ray.tune import ResultGrid

from fedray import report
from fedray.config.source import as_value, own_overrides
from fedray.core.privacy.settings import Private
from fedray.core.types import RunError
from fedray.core.words import words
from fedray.engine.driver import session
from fedray.engine.telemetry.trackers import Card, MLflow
from fedray.engine.telemetry.tracking import Tracking
from fedray.experiment import Config, build_data
from fedray.report.sweep_description import NAME as DESCRIPTION
from fedray.runs import places
from fedray.runs.folder import RunFolder
from fedray.sweep import choices, tuning
from fedray.sweep.choices import DRAWS, Choices
from fedray.sweep.prepare import prepare, pretrained, transcripts
from fedray.sweep.reserve import reserve
from fedray.sweep.space import Space, combinations, for_search, grid_values, is_conditional, shown, smoke, widened
from fedray.sweep.study import Study, Sweep, find, overlaps, with_files

FAILED, INTERRUPTED = 1, 130
ERROR = "error.txt"  # written by Tune to the folder of a trial
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def main(sweep: Sweep, arguments: Sequence[str] | None = None) -> int:
    """Run a sweep; returns the exit status: 0 success, 1 failed or unfinished trials, 2 bad input, 130 interrupted."""
    try:
        options = _parse(sweep, arguments)
        sweep = _asked(sweep, options)
        options.overrides = [*_of_configuration(sweep, options), *options.overrides]
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
    parser.add_argument(
        "--with",
        dest="base",
        metavar="CONFIG",
        help="keys of a configuration, without those that it extends, for all trials; not swept keys, nor its name",
    )
    parser.add_argument(
        "--over",
        action="append",
        default=[],
        metavar="KEY=[VALUE,...]",
        help="a further key to sweep, or other values of one; folds are averaged like seeds",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="score that ranks trials, such as personal/own/macro_f1; the report then lacks the sweep's own figures",
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


def _asked(sweep: Sweep, options: argparse.Namespace) -> Sweep:
    """The sweep with the axes of --over, and compared by the score of --metric."""
    sweep = replace(sweep, space=widened(sweep.space, options.over))
    if options.metric is None:
        return sweep
    return replace(sweep, metric=options.metric, mode=None, figures=())  # its figures show scores that may be missing


def _of_configuration(sweep: Sweep, options: argparse.Namespace) -> list[str]:
    """The overrides of --with."""
    if options.base is None:
        return []
    given = own_overrides(find(options.base, Path(sys.argv[0])))
    return [one for one in given if not any(overlaps(one.partition("=")[0], key) for key in sweep.space)]


def _sweep(sweep: Sweep, options: argparse.Namespace) -> int:
    place = places.place(options.out) if options.out is not None else places.usual_place(sweep.name)
    folder = RunFolder(place)
    chosen = (choices.resumed if options.resume else choices.new)(sweep, folder, options)
    sweep = _with_files(sweep, chosen)
    space = smoke(sweep.space) if chosen.smoke else sweep.space
    if chosen.search == "optuna" or not chosen.smoke:  # else the grid of the smoke test stays a grid
        space = for_search(space, chosen.search)
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
        conditional=[key for key, domain in sweep.space.items() if is_conditional(domain)],
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
    if chosen.scheduler == "pbt" and study.conditional:
        raise ValueError(
            f"--scheduler pbt changes keys during a trial, and {study.conditional[0]} is a tune.sample_from, computed "
            "before it: choose fifo or asha"
        )
    session.connect()
    if uri.startswith("sqlite:") and len(session.resources()) > 1:
        raise ValueError(f"tracker.uri={uri} is a file, and trials run on several machines: name an MLflow server")
    trials = chosen.samples * math.prod(len(values) for key in space if (values := grid_values(space[key])) is not None)
    study, at_once = _reserved(study, space, first, trials, options.max_concurrent or sweep.at_once)
    if folder.root is not None:
        folder.root.mkdir(parents=True, exist_ok=True)
    with folder.locked():
        folder.write_json(DESCRIPTION, asdict(chosen))
        began = options.resume and folder.exists(tuning.STATE)
        if not began:  # a resumed sweep too, if it was killed before its first trial
            prepare(study, space, at_once)
        every = first.evaluation.scored_every(sweep.metric)
        plan = tuning.Plan(space, chosen.search, chosen.scheduler, chosen.samples, at_once, first.rounds, every)
        with _tracked(sweep, folder, first) as tracking:
            study = replace(study, parent=tracking.id())
            results = (tuning.again(study, plan) if began else tuning.tuner(sweep, study, plan)).fit()
            status = _ended(sweep, folder, results, trials, first.data.root)
            tracking.close({0: "finished", FAILED: "failed"}.get(status, "stopped"))
            return status


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
def _tracked(sweep: Sweep, folder: RunFolder, first: Config) -> Iterator[Tracking]:
    """Record the sweep in the tracker of its trials, with the report at the end. The caller closes the tracker."""
    name = Path(folder.place).name
    card = Card(name, {"question": sweep.question, "keys": list(sweep.space)}, {"name": sweep.name}, sweep=name)
    tracking = Tracking(first.tracker, card, folder, lambda text: print(f"{sweep.name}: {text}", file=sys.stderr))
    tracking.knock()
    tracking.begin()
    try:
        yield tracking
    except BaseException:
        tracking.close("stopped")
        raise


def _reserved(study: Study, space: Space, config: Config, trials: int, most: int | None) -> tuple[Study, int]:
    """The study with the resources that each trial reserves, and how many trials run at once."""
    population = None
    if config.engine.placement == "dedicated":
        data, _ = build_data(*study.config(next(combinations(space, []))))
        population = len(data.client_ids())
    share, at_once = reserve(config.engine, session.resources(), trials, most, population)
    return replace(study, share=share), at_once


def _ended(sweep: Sweep, folder: RunFolder, results: ResultGrid, trials: int, root: str | None) -> int:
    """Write the report, say what has ended how, and return the exit status.

    `trials`: of the whole sweep; `root`: of the corpus.
    """
    failed = [result for result in results if result.error is not None]
    for result in failed:
        print(f"{sweep.name}: {result.path} failed: {_why(result.error)}", file=sys.stderr)
        print(f"  traceback: {result.path}/{ERROR}", file=sys.stderr)
    done = sum(bool((result.metrics or {}).get("done")) for result in results if result.error is None)
    if results.num_terminated:
        found = report.read(folder.place, audio=[root] if root is not None else [])
        print(f"report: {found.save()}")
        if ranked := found.ranked():
            best, metric = ranked[0], found.ranked_by
            runs = len(best.values(metric))
            mean = f", the mean of {runs} trials" if runs > 1 else ""
            print(f"best {metric}: {best.label} with {best.score(metric):.4g}{mean}")
    if folder.root is not None:  # Tune's own line names a temporary folder
        print(f"curves: tensorboard --logdir {quote(folder.place)}  # pip install 'fedray[tensorboard]'")
    print(f"experiment: {folder.place}")
    again = "the same command with --resume"
    if failed:
        print(f"{sweep.name}: {len(failed)} of {trials} trials failed: {again} tries them again", file=sys.stderr)
    if left := trials - done - len(failed):
        print(f"{sweep.name}: interrupted, {left} of {trials} trials did not end: {again} continues", file=sys.stderr)
        return INTERRUPTED
    return FAILED if failed else 0


def _why(error: Exception) -> str:
    """The message of a trial's error; the last line of the traceback where the message is not fedray's."""
    cause = session.cause_of(error) if isinstance(error, RayTaskError) else error
    if isinstance(cause, ValueError | RunError):
        return words(cause)
    return ANSI.sub("", (str(cause).strip().splitlines() or [type(cause).__name__])[-1])
