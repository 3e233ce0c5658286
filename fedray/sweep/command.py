"""`python sweeps/question.py [options] [key=value ...]`: prepare, run all trials, report."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from ray.tune import ResultGrid

from fedray import report, runs
from fedray.core.types import RunError
from fedray.engine import session
from fedray.engine.folder import RunFolder
from fedray.experiment import Config
from fedray.programs import build_data
from fedray.report.sweep import NAME as DESCRIPTION
from fedray.sweep import study as studies
from fedray.sweep import tuning
from fedray.sweep.prepare import prepare
from fedray.sweep.reserve import reserve
from fedray.sweep.study import Study, Sweep

INTERRUPTED = 130
DRAWS = 8  # trials of a search that draws, where nobody says how many


def main(sweep: Sweep, arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 fine, 1 trials failed or are not finished, 2 bad input, 130 interrupted."""
    options = _parse(sweep, arguments)
    try:
        return _sweep(sweep, options)
    except ValueError as error:
        print(f"{sweep.name}: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"{sweep.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{sweep.name}: interrupted; the same command with --resume goes on", file=sys.stderr)
        return INTERRUPTED


def _parse(sweep: Sweep, arguments: Sequence[str] | None) -> argparse.Namespace:
    swept = "\n".join(f"  {key}: {_shown(domain)}" for key, domain in sweep.space.items())
    parser = argparse.ArgumentParser(
        description=f"{sweep.question}\n\nSwept:\n{swept}\n\nMetric: {sweep.metric} ({sweep.mode})",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="dotted overrides for all trials; not of what is swept")
    parser.add_argument("--out", metavar="DIR", help=f"the experiment's folder, or its URI (default: runs/{sweep.name})")
    parser.add_argument("--num-samples", type=int, metavar="N", help=f"draws from the space ({DRAWS}); repeats of a grid ({sweep.samples})")
    parser.add_argument(
        "--scheduler", choices=tuning.SCHEDULERS, default="fifo", help="asha ends bad trials early, pbt changes keys midway"
    )
    parser.add_argument("--search", choices=tuning.SEARCHES, help="default: grid where the space is one, else random")
    parser.add_argument("--max-concurrent", type=int, metavar="N", help="trials at a time (default: as many as have a core for an actor)")
    parser.add_argument("--resume", action="store_true", help="go on: finished trials stay, failed ones are tried again")
    parser.add_argument("--smoke", action="store_true", help="two small trials, to see that all works")
    options = parser.parse_intermixed_args(arguments)
    for override in options.overrides:
        if "=" not in override:
            parser.error(f"{override}: overrides are key=value")
    for name in ("num_samples", "max_concurrent"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return options


def _shown(domain: Any) -> str:
    found = studies.options(domain)
    return ", ".join(map(str, found)) if found is not None else f"{type(domain).__name__} {domain.domain_str}"


def _sweep(sweep: Sweep, options: argparse.Namespace) -> int:
    place = runs.place(options.out) if options.out is not None else runs.usual_place(sweep.name)
    folder = RunFolder(place)
    chosen = _before(sweep, folder) if options.resume else _chosen(sweep, folder, options)
    space = studies.smoke(sweep.space) if chosen["smoke"] else tuning.space_for(sweep.space, chosen["search"])
    settings = [*sweep.settings, *(sweep.small if chosen["smoke"] else ())]
    own = ["engine.checkpoint_every=1"]  # what Tune names must be there
    study = Study(
        os.fspath(place),
        sweep.base,
        chosen["bases"],
        sweep.names,
        settings,
        chosen["overrides"],
        chosen["folder"],
        sweep.metric,
        tuning.KEEP,
        own,
    )
    first = study.check(space)
    session.connect()
    study, at_once = _reserved(study, space, first, chosen["samples"], options.max_concurrent or sweep.at_once)
    if folder.root is not None:
        folder.root.mkdir(parents=True, exist_ok=True)
    with folder.locked():
        folder.write_json(DESCRIPTION, chosen)
        began = options.resume and folder.exists(tuning.STATE)
        if not began:  # or it was killed before the first trial
            prepare(study, space, at_once)
        plan = tuning.Plan(space, chosen["search"], chosen["scheduler"], chosen["samples"], at_once, first.rounds)
        results = (tuning.again(study, plan) if began else tuning.tuner(sweep, study, plan)).fit()
        return _ended(sweep, folder, results)


def _chosen(sweep: Sweep, folder: RunFolder, options: argparse.Namespace) -> dict[str, Any]:
    """All that the trials depend on: sweep.json."""
    if folder.exists(DESCRIPTION):
        shown = quote(folder.place)
        raise ValueError(f"{folder.place} holds a sweep already: go on with --resume --out {shown}, or choose another folder with --out")
    studies.check_space(sweep, options.overrides)
    grid = all(studies.is_grid(domain) for domain in sweep.space.values()) and options.scheduler != "pbt"
    search = options.search or ("grid" if grid else "random")
    return {
        "name": sweep.name,
        "question": sweep.question,
        "keys": list(sweep.space),
        "metric": sweep.metric,
        "mode": sweep.mode,
        "reference": sweep.reference,
        "figures": [figure.described() for figure in sweep.figures],
        "search": search,
        "scheduler": options.scheduler,
        "samples": 1 if options.smoke else options.num_samples or (sweep.samples if search == "grid" else max(sweep.samples, DRAWS)),
        "smoke": options.smoke,
        "overrides": options.overrides,
        "folder": os.getcwd(),
        "bases": studies.read_bases(sweep, Path(sys.argv[0])),
    }


def _before(sweep: Sweep, folder: RunFolder) -> dict[str, Any]:
    """What the experiment began with."""
    if not folder.exists(DESCRIPTION):
        raise ValueError(f"{folder.place} holds no sweep to go on with: leave out --resume")
    chosen = dict(json.loads(folder.read_text(DESCRIPTION)))
    if (chosen["name"], chosen["keys"]) != (sweep.name, list(sweep.space)):
        raise ValueError(f"{folder.place} holds the sweep {chosen['name']} of {', '.join(chosen['keys'])}: that is another question")
    return chosen


def _reserved(study: Study, space: Mapping[str, Any], config: Config, samples: int, most: int | None) -> tuple[Study, int]:
    """The study with what each trial reserves, and how many trials run at once."""
    grids = [len(domain["grid_search"]) for domain in space.values() if studies.is_grid(domain)]
    population = None
    if config.engine.placement == "dedicated":
        data, _ = build_data(*study.config(next(studies.combinations(space, []))))
        population = len(data.client_ids())
    share, at_once = reserve(config.engine, session.resources(), samples * math.prod(grids), most, population)
    return replace(study, share=share), at_once


def _ended(sweep: Sweep, folder: RunFolder, results: ResultGrid) -> int:
    for result in results:
        if result.error is not None:
            print(f"{sweep.name}: {result.path} failed: {result.error}", file=sys.stderr)
    left = len(results) - results.num_terminated
    if left:
        print(f"{sweep.name}: {left} of {len(results)} trials are not finished: the same command with --resume goes on", file=sys.stderr)
    if results.num_terminated:
        page = report.write([folder.place])
        print(f"report: {page}")
    print(f"experiment: {folder.place}")
    return 1 if left else 0
