"""From a configuration to a run: Config -> data, task, algorithm, engine; a new one, or one that goes on."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from ray.util.placement_group import PlacementGroup

from fedray import runs
from fedray.algorithms import ALGORITHMS
from fedray.core import config as configuration
from fedray.core.algorithm import Algorithm
from fedray.core.config import ConfigError, Source, kinds, plain
from fedray.core.optimizers import SERVER_OPTIMIZERS
from fedray.core.parallel import Parallel
from fedray.core.strategies import STRATEGIES
from fedray.data.features import FeatureSettings
from fedray.data.federated import DataSettings
from fedray.engine import session
from fedray.engine.driver import Assignment
from fedray.engine.folder import RunFolder
from fedray.engine.resources import Share, share
from fedray.engine.rounds import Plan
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.engine.work import Program
from fedray.models import MODELS
from fedray.programs import build_data, build_program, description
from fedray.training.tasks import TASKS


@dataclass(frozen=True)
class Config:
    """A configuration file."""

    cohort: CohortSettings
    name: str = "fedray"
    seed: int = 0
    rounds: int = 25
    imports: list[str] = field(default_factory=list)  # modules of one's own, imported first: they add to the registries
    data: DataSettings = field(default_factory=DataSettings)
    features: FeatureSettings = field(default_factory=FeatureSettings)
    task: Any = kinds(TASKS, "recognition")
    model: Any = kinds(MODELS, "conformer")
    algorithm: Any = kinds(ALGORITHMS, None)
    strategy: Any = kinds(STRATEGIES, "by_examples")
    server_optimizer: Any = kinds(SERVER_OPTIMIZERS, "sgd")
    engine: EngineSettings = field(default_factory=EngineSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def __post_init__(self) -> None:
        if self.algorithm is None:
            raise ValueError(f"algorithm.kind is missing; known kinds: {', '.join(ALGORITHMS)}")
        if self.rounds < 1:
            raise ValueError(f"rounds must be at least 1, not {self.rounds}")


@dataclass(frozen=True)
class Result:
    """A run: its folder (a path, or a URI), and what results.json holds. {"stopped": round}: the user ended it; {}: it was detached."""

    folder: Path | str
    results: dict[str, Any]


def load(
    config: str | os.PathLike[str] | Mapping[str, Any], overrides: Iterable[str] = (), folder: Path | None = None, into: type = Config
) -> tuple[Any, Source]:
    """A checked configuration from a YAML file or a mapping. Imports what `imports` names, from `folder` too (None: the current one).

    `into`: the dataclass it is checked against.
    """
    source = configuration.from_mapping(config, overrides) if isinstance(config, Mapping) else configuration.read(Path(config), overrides)
    looked = str(folder or Path.cwd())
    for module in source.values.get("imports") or []:
        sys.path.insert(0, looked)
        try:
            session.ship(importlib.import_module(module))
        except ImportError as error:
            raise ConfigError(
                f"{source.where('imports')}: imports: {module} cannot be imported ({error}); it is looked for in {looked} too"
            ) from error
        finally:
            sys.path.remove(looked)
    return configuration.build(into, source), source


def with_absolute_paths(config: Config, base: Path = Path()) -> Config:
    """The same for a run that is resumed from another working folder, or whose actors have another. `base`: what paths are relative to."""
    root = config.data.root and str((base / Path(config.data.root).expanduser()).resolve())
    config = replace(config, data=replace(config.data, root=root))
    for name, there in (("init", Path.is_file), ("folder", Path.is_dir)):
        if getattr(config.model, name, None) is not None:
            path = (base / Path(getattr(config.model, name)).expanduser()).resolve()
            if not there(path):
                raise ConfigError(f"model.{name}: there is no {'file' if name == 'init' else 'folder'} {path}")
            config = replace(config, model=replace(config.model, **{name: str(path)}))
    return config


def run(
    config: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    algorithms: Mapping[str, type[Algorithm]] | None = None,
    out: str | os.PathLike[str] | None = None,
    detach: bool = False,
) -> Result:
    """Run a configuration (a YAML file or a mapping) to its end; with `detach`, on the Ray at RAY_ADDRESS, return when it is under way.

    `algorithms` adds one's own by the name that `algorithm.kind` calls them; `out` is the run folder or its URI (default:
    runs/<name>-<time>).
    """
    register(algorithms)
    checked, source = load(config, overrides)
    checked = with_absolute_paths(checked)
    where = runs.new_place(checked.name, out)
    session.connect(lasting=detach)
    shares = share(checked.engine, session.resources())
    program = build(checked, source, where, shares)
    return start(checked, program, shares, where, description(checked, program, shares), detach)


def build(config: Config, source: Source, where: Path | str, shares: Share, parallel: Parallel | None = None) -> Program:
    """What a run in a new folder plays; broken audio that is left out is written down there."""
    data, broken = build_data(config, source, parallel)
    folder = RunFolder(where)
    if folder.root is not None:
        folder.root.mkdir(parents=True, exist_ok=True)
    if broken:
        folder.write_text("broken.tsv", "".join(f"{utterance}\t{why}\n" for utterance, why in broken.items()))
    return build_program(config, data, folder, shares.gpus)


def reopen(folder: RunFolder, overrides: Iterable[str]) -> tuple[Config, Source]:
    """The configuration of a run that is to go on."""
    if not folder.exists("config.yaml"):
        raise ValueError(f"{folder.place} is not a run folder: it has no config.yaml")
    overrides = list(overrides)
    runs.check_resumable(overrides)
    return load(folder.root / "config.yaml" if folder.root is not None else yaml.safe_load(folder.read_text("config.yaml")), overrides)


def resume(
    folder: str | os.PathLike[str],
    overrides: Iterable[str] = (),
    *,
    algorithms: Mapping[str, type[Algorithm]] | None = None,
    detach: bool = False,
) -> Result:
    """Go on from the newest checkpoint of a run folder, bit for bit. Only rounds, actors, their shares and what is kept may be changed."""
    where = runs.place(folder)
    opened = RunFolder(where)
    register(algorithms)
    checked, source = reopen(opened, overrides)
    session.connect(lasting=detach)
    shares = share(checked.engine, session.resources())
    data, _ = build_data(checked, source)
    before = json.loads(opened.read_text("run.json"))
    if before["data"] != data.fingerprint():
        raise ValueError(
            f"{opened.place}: the data are not those the run began with (changed files, another cache): going on would be another run"
        )
    program = build_program(checked, data, opened, shares.gpus)
    now = description(checked, program, shares)
    changed = [f"{name} {before.get(name)} -> {now[name]}" for name in ("code", "torch") if before.get(name) != now[name]]
    if changed:
        print(f"warning: not the run that began, so not bit for bit: {', '.join(changed)}", file=sys.stderr)
    return start(checked, program, shares, where, before, detach)


def register(algorithms: Mapping[str, type[Algorithm]] | None) -> None:
    """Add a user's algorithms to the registry, and have their module travel to the actors."""
    for kind, algorithm in (algorithms or {}).items():
        if ALGORITHMS.get(kind, algorithm) is not algorithm and ALGORITHMS[kind].__module__.partition(".")[0] == "fedray":
            raise ValueError(f"the name {kind!r} is taken by fedray's own {ALGORITHMS[kind].__name__}: choose another")
        if any(entry.Settings is algorithm.Settings for name, entry in ALGORITHMS.items() if name != kind):
            raise ValueError(f"{algorithm.__name__} shares its Settings with another algorithm: derive a dataclass of its own")
        ALGORITHMS[kind] = algorithm
        session.ship(sys.modules[algorithm.__module__])


def start(config: Config, program: Program, shares: Share, where: Path | str, described: Mapping[str, str], detach: bool) -> Result:
    """Hand it to a driver, and show how it goes."""
    if config.engine.placement == "dedicated":
        shares = share(config.engine, session.resources(), len(program.data.client_ids()))
    assignment = assign(config, program, shares, where, described)
    if detach:
        session.detach(assignment)
        return Result(where, {})
    return Result(where, session.run(assignment))


def assign(
    config: Config,
    program: Program,
    shares: Share,
    where: Path | str,
    described: Mapping[str, str],
    group: PlacementGroup | None = None,
) -> Assignment:
    """The driver writes config.yaml (every default written out) and run.json once it holds the folder's lock."""
    texts = {
        "run.json": json.dumps(described, indent=2) + "\n",
        "config.yaml": yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True),
    }
    plan = Plan(config.rounds, config.cohort, config.engine, config.evaluation)
    return Assignment(config.name, program, program.algorithm.assets(), plan, shares, where, texts, group)
