"""Start a run in a new folder, or resume one from its newest checkpoint; wait for its end, or detach from it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote

from ray.util.placement_group import PlacementGroup

from fedray.config.merging import dotted
from fedray.config.schema import plain
from fedray.config.source import ConfigError, Source
from fedray.config.written import as_yaml, recorded
from fedray.core.algorithm import Algorithm
from fedray.core.parallel import Parallel
from fedray.core.texts import json_text
from fedray.engine.cluster.resources import Share, share
from fedray.engine.driver import session
from fedray.engine.driver.driver import Assignment
from fedray.engine.jobs.work import Program
from fedray.engine.telemetry.trackers import Card
from fedray.experiment.builders import build_data, build_plan, build_program
from fedray.experiment.checks import check
from fedray.experiment.config import Config, Given, load, register, tell_replaced
from fedray.experiment.description import Description, carried_on, description
from fedray.experiment.fitted import fitted
from fedray.experiment.learnable import tell_slow, tell_unlearnable
from fedray.experiment.private import paced_by
from fedray.experiment.result import Result
from fedray.runs import places
from fedray.runs.folder import RunFolder
from fedray.runs.scores import check_results
from fedray.runs.strangers import check_own, read_config
from fedray.storage.base import parent
from fedray.training import compiling


def run(
    config: Given,
    overrides: Iterable[str] = (),
    *,
    algorithms: Mapping[str, type[Algorithm]] | None = None,
    out: str | os.PathLike[str] | None = None,
    detach: bool = False,
) -> Result:
    """Run a configuration (a YAML file, a name such as `fednst/embedded`, or a mapping) to its end.

    `detach`: return once the run has started on the Ray at RAY_ADDRESS. `algorithms`: the user's algorithms, by their
    `algorithm.kind`. `out`: the run folder, a path or a URI (default: runs/<name>-<time>).
    ValueError: the configuration, the data or the folder is not usable. RunError: the run failed. KeyboardInterrupt:
    Ctrl-C, or an interrupted notebook cell, ended it after a round, with a checkpoint: `resume` continues.
    """
    register(algorithms)
    loaded, source = load(config, overrides)
    checked = check(loaded, source)
    tell_replaced(loaded, source)
    where = places.new_place(checked.name, out)
    with places.unless_begun(where, keep=out is not None and os.path.isdir(where)):
        session.connect(lasting=detach)
        shares = share(checked.engine, session.resources())
        tell_slow(checked, shares.gpus)
        if not shares.gpus:
            compile_beside(checked)
        program = build(checked, source, where, shares)
        described = description(checked, source, program, shares)
        shares = fitted(checked, program, shares, session.resources())
    return start(checked, source, program, shares, where, described, detach, new=True)


def compile_beside(config: Config) -> None:
    """Compile the model's loops while the data are prepared, unless the cache has them."""
    done = compiling.marker(config.model)
    if config.kernels == "auto" and done is not None and not done.exists():
        session.beside(functools.partial(compiling.compile_loops, config.model, config.features.bins))


def build(
    config: Config, source: Source, where: Path | str, shares: Share, parallel: Parallel | None = None
) -> Program:
    """Build the program of a run in a new folder. The folder gets broken.tsv if broken audio is left out."""
    data, broken = build_data(config, source, parallel)
    folder = RunFolder(where)
    program = build_program(config, data, folder.states, shares.gpus)
    tell_unlearnable(config, program.algorithm, data)
    if folder.root is not None:
        folder.root.mkdir(parents=True, exist_ok=True)
    if broken:
        folder.write_text("broken.tsv", "".join(f"{utterance}\t{why}\n" for utterance, why in broken.items()))
    return program


def reopen(folder: RunFolder, overrides: Iterable[str]) -> tuple[Config, Source]:
    """Load and check the configuration of a run that is to be resumed.

    ValueError: the folder holds no run, or a key in `overrides` may not change.
    """
    folder.check_is_run()
    check_own(folder, "config.yaml")  # which may name modules to import
    overrides = list(overrides)
    places.check_resumable(overrides)
    given = folder.root / "config.yaml" if folder.root is not None else read_config(folder)
    config, source = load(given, overrides)
    if config.rounds < (done := max(folder.saved_rounds(), default=0)):
        where = source.where("rounds")
        raise ConfigError(
            f"{where}: rounds={config.rounds}, but {folder.place} has {done} already: ask for {done} or more"
        )
    return check(config, source), source


def resume(
    folder: str | os.PathLike[str],
    overrides: Iterable[str] = (),
    *,
    algorithms: Mapping[str, type[Algorithm]] | None = None,
    detach: bool = False,
    accept_changes: bool = False,
) -> Result:
    """Resume a run from its newest checkpoint, bit for bit. The result of a finished run is returned as it is.

    `overrides` may change `rounds`, `data.root` and some keys of `engine`.
    `accept_changes`: continue even if something that bits depend on has changed; run.json and the report say what.
    ValueError: the folder holds no run, its data changed, a key in `overrides` may not change, or something else has
    changed that is not accepted. RunError: the run failed. KeyboardInterrupt: as from `run`.
    """
    where = places.place(folder)
    opened = RunFolder(where)
    register(algorithms)
    overrides = list(overrides)
    checked, source = reopen(opened, overrides)
    if _has_ended(opened, checked):
        return Result.read(where)  # nothing is left to do
    session.connect(lasting=detach)
    shares = share(checked.engine, session.resources())
    data, _ = build_data(checked, source)
    program = build_program(checked, data, opened.states, shares.gpus)
    tell_unlearnable(checked, program.algorithm, data)
    now = description(checked, source, program, shares)
    remedy = f"`{' '.join(['fedray resume', *map(quote, (opened.place, *overrides)), '--accept-changes'])}`"
    described = carried_on(opened, now, paced_by(checked, program.algorithm), accept_changes, remedy)
    shares = fitted(checked, program, shares, session.resources())
    return start(checked, source, program, shares, where, described, detach)


def _has_ended(folder: RunFolder, config: Config) -> bool:
    """Whether the results are those of the newest checkpoint, and rounds or patience have ended there.

    ValueError names a damaged results.json.
    """
    saved, patience = max(folder.saved_rounds(), default=None), config.evaluation.patience
    if saved is None or not folder.exists("results.json"):
        return False
    if config.rounds == saved or patience is None:
        return config.rounds == saved
    results = folder.read_json("results.json")
    check_results(results, folder.storage.shown("results.json"), ("rounds",))
    waited = saved - int(results["best"]["round"])
    return bool(results["rounds"] == saved and waited >= patience)


def start(
    config: Config,
    source: Source,
    program: Program,
    shares: Share,
    where: Path | str,
    described: Description,
    detach: bool,
    new: bool = False,
) -> Result:
    """Hand a run to a driver, and show its progress. `new`: its folder must be new or empty."""
    assignment = replace(assign(config, source, program, shares, where, described), new=new)
    if detach:
        session.detach(assignment)
        return Result(where, {})
    return Result(where, session.run(assignment))


def assign(
    config: Config,
    source: Source,
    program: Program,
    shares: Share,
    where: Path | str,
    described: Description,
    group: PlacementGroup | None = None,
    card: Card | None = None,
) -> Assignment:
    """Build what a driver runs. `card`: what a tracker is told about a sweep's trial; the configuration is added here.

    The driver writes config.yaml (every default written out) and run.json once it holds the folder's lock.
    """
    texts = {
        "run.json": json_text(described, indent=2) + "\n",
        "config.yaml": as_yaml(plain(config), source),
    }
    plan = build_plan(config, program, shares.gpus)
    card = card or Card(parent(RunFolder(where).place)[1])  # a URI's query may hold a secret
    tags = {"algorithm": config.algorithm.kind, "seed": str(config.seed), "name": config.name}
    card = replace(card, params=dotted(recorded(plain(config), source)), tags=tags)
    assets = program.algorithm.assets(program.data)
    return Assignment(config.name, program, assets, plan, shares, where, texts, group, config.tracker, card)
