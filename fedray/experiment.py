"""From a configuration to a run: Config -> data, task, algorithm, engine."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import ray
import torch
import yaml

import fedray
from fedray import runs
from fedray.algorithms import ALGORITHMS
from fedray.core import config as configuration
from fedray.core.algorithm import Algorithm, Parts
from fedray.core.cache import cache_root, key
from fedray.core.config import ConfigError, Source, kind_of, kinds, pick, plain
from fedray.core.optimizers import SERVER_OPTIMIZERS
from fedray.core.schedules import Schedule
from fedray.core.strategies import STRATEGIES
from fedray.data.corpora import CORPORA
from fedray.data.features import FeatureSettings
from fedray.data.federated import DataSettings, SpeechData, federate
from fedray.data.manifest import Manifest
from fedray.engine import session
from fedray.engine.driver import Assignment
from fedray.engine.folder import RunFolder
from fedray.engine.resources import Share, share
from fedray.engine.rounds import Plan
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.engine.store import ClientStore
from fedray.engine.work import Program
from fedray.models import MODELS
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


def load(config: str | os.PathLike[str] | Mapping[str, Any], overrides: Iterable[str] = ()) -> tuple[Config, Source]:
    """A checked configuration from a YAML file or a mapping. Imports what `imports` names."""
    source = configuration.from_mapping(config, overrides) if isinstance(config, Mapping) else configuration.read(Path(config), overrides)
    for module in source.values.get("imports") or []:
        sys.path.insert(0, os.getcwd())
        try:
            session.ship(importlib.import_module(module))
        except ImportError as error:
            raise ConfigError(
                f"{source.where('imports')}: imports: {module} cannot be imported ({error}); it is looked for in the current folder too"
            ) from error
        finally:
            sys.path.remove(os.getcwd())
    return configuration.build(Config, source), source


def with_absolute_paths(config: Config) -> Config:
    """The same for a run that is resumed from another working folder, or whose actors have another."""
    root = config.data.root and str(Path(config.data.root).expanduser().resolve())
    config = replace(config, data=replace(config.data, root=root))
    if getattr(config.model, "init", None) is None:
        return config
    init = Path(config.model.init).expanduser().resolve()
    if not init.is_file():
        raise ConfigError(f"model.init: there is no file {init}")
    return replace(config, model=replace(config.model, init=str(init)))


def read_corpus(config: Config, source: Source) -> dict[str, Manifest]:
    """The manifests of the configuration's corpus, read or made."""
    settings = config.data
    if settings.corpus not in CORPORA:
        raise ConfigError(f"{source.where('data.corpus')}: data.corpus: {settings.corpus!r} is not known; known: {', '.join(CORPORA)}")
    corpus = configuration.build(CORPORA[settings.corpus], source, "data.options", settings.options)
    if hasattr(corpus, "client_speakers_made") and settings.clients.by == "speaker":
        check_population(config, source, corpus.client_speakers_made())  # before minutes are spent on making it
    root = Path(settings.root).expanduser() if settings.root is not None else None
    splits: dict[str, Manifest] = corpus.read(root, settings.seed, cache_root() / "corpora", session.parallel)
    return splits


def build_data(config: Config, source: Source) -> tuple[SpeechData, dict[str, str]]:
    """The federation, and the broken audio that `data.skip_broken` left out. A cohort too large is refused before features are made."""
    check = functools.partial(check_population, config, source)
    target = getattr(config.task, "label", "text")  # the column that label errors are made in
    return federate(read_corpus(config, source), config.data, config.features, cache_root() / "features", session.parallel, check, target)


def check_population(config: Config, source: Source, population: int) -> None:
    try:
        config.cohort.count(population)
    except ValueError as error:
        raise ConfigError(f"{source.where('cohort.size')}: {error}") from error


def build_algorithm(config: Config, data: SpeechData) -> Algorithm:
    task = TASKS[kind_of(config.task, TASKS)](config.task, config.model, config.features, data)
    schedule = getattr(config.algorithm, "schedule", None)
    if isinstance(schedule, Schedule):
        schedule.check(config.rounds)
    parts = Parts(task, config.strategy, config.server_optimizer, config.rounds)
    kind = kind_of(config.algorithm, ALGORITHMS)
    if ALGORITHMS[kind].central and len(data.client_ids()) > 1:
        raise ConfigError(f"algorithm.kind {kind} trains in one place: set data.clients.by=pooled and cohort.size=1")
    return ALGORITHMS[kind](config.algorithm, parts)


def build_program(config: Config, data: SpeechData, folder: RunFolder, gpus: float) -> Program:
    algorithm, values = build_algorithm(config, data), plain(config)
    init_cache = prepare_cache = None
    if algorithm.init_depends:
        code = code_version(config.imports)
        weights = getattr(config.model, "init", None)
        start = weights and [Path(weights).stat().st_size, Path(weights).stat().st_mtime_ns]
        taught = data.fingerprint("server" if data.server() is not None else "clients")  # what tokens are learnt from, at the least
        parts = {"code": code, "data": taught, "start": start, "gpu": bool(gpus)} | pick(values, algorithm.init_depends)
        parts["classes"] = getattr(algorithm.task, "classes", None)
        if not shares_init(algorithm):
            parts["algorithm"] = source_of(type(algorithm))
        init_cache = cache_root() / "init" / f"{key(parts)}.pt"
        if algorithm.prepare_depends and algorithm.overrides("client_prepare"):
            more = {"init": parts, "clients": data.fingerprint("clients"), "algorithm": source_of(type(algorithm))}
            more |= pick(values, algorithm.prepare_depends)
            prepare_cache = cache_root() / "prepared" / key(more)
    return Program(algorithm, data, config.seed, ClientStore(folder.storage.child("states")), init_cache, prepare_cache)


def shares_init(algorithm: Algorithm) -> bool:
    """Whether theta_0 is the one that `init_name` stands for: a subclass with an `init` of its own makes another."""
    named = next((cls for cls in type(algorithm).__mro__ if vars(cls).get("init_name") is not None), None)
    return named is not None and type(algorithm).init is named.init


def code_version(imports: Iterable[str]) -> str:
    """A hash of all source that a cached theta_0 or client state can depend on, besides the algorithm's own."""
    root = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for path in [path for floor in ("core", "data", "models", "training") for path in sorted((root / floor).rglob("*.py"))]:
        digest.update(path.read_bytes())
    for module in imports:
        digest.update(source_of(sys.modules[module]).encode())
    return digest.hexdigest()


def source_of(thing: Any) -> str:
    """A hash of the source of a module, or of the module that a class is from; of its bytecode where there is no file (a console)."""
    module = thing if isinstance(thing, ModuleType) else sys.modules[thing.__module__]
    path = Path(getattr(module, "__file__", None) or "")
    source = path.read_bytes() if path.is_file() else ray.cloudpickle.dumps(thing)
    return hashlib.blake2b(source, digest_size=8).hexdigest()


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
    data, broken = build_data(checked, source)
    folder = RunFolder(where)
    if folder.root is not None:
        folder.root.mkdir(parents=True, exist_ok=True)
    if broken:
        folder.write_text("broken.tsv", "".join(f"{utterance}\t{why}\n" for utterance, why in broken.items()))
    program = build_program(checked, data, folder, shares.gpus)
    return start(checked, program, shares, where, description(checked, program, shares), detach)


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


def description(config: Config, program: Program, shares: Share) -> dict[str, str]:
    """run.json: what the run's bits depend on besides its configuration."""
    exact = "the same bits for any number of actors, on one type of CPU with these versions"
    return {
        "fedray": fedray.__version__,
        "code": code_version(config.imports),
        "algorithm": source_of(type(program.algorithm)),
        "torch": torch.__version__,
        "ray": ray.__version__,
        "python": sys.version.split()[0],
        "data": program.data.fingerprint(),
        "deterministic": exact if not shares.gpus else "up to what CUDA does deterministically; the backward pass of CTC is not",
    }


def start(config: Config, program: Program, shares: Share, where: Path | str, described: Mapping[str, str], detach: bool) -> Result:
    """Hand it to a driver, which holds the folder's lock when it writes config.yaml (every default written out) and run.json."""
    texts = {
        "run.json": json.dumps(described, indent=2) + "\n",
        "config.yaml": yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True),
    }
    plan = Plan(config.rounds, config.cohort, config.engine, config.evaluation)
    if config.engine.placement == "dedicated":
        shares = share(config.engine, session.resources(), len(program.data.client_ids()))
    assignment = Assignment(config.name, program, program.algorithm.assets(), plan, shares, where, texts)
    if detach:
        session.detach(assignment)
        return Result(where, {})
    return Result(where, session.run(assignment))
