"""From a checked configuration to what actors run: data, task, algorithm, and what a run's bits depend on."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import ray
import torch

import fedray
from fedray.algorithms import ALGORITHMS
from fedray.core import config as configuration
from fedray.core.algorithm import Algorithm, Parts
from fedray.core.cache import cache_root, key
from fedray.core.config import ConfigError, Source, kind_of, pick, plain
from fedray.core.parallel import Parallel
from fedray.core.schedules import Schedule
from fedray.data.corpora import CORPORA
from fedray.data.federated import SpeechData, federate
from fedray.data.manifest import Manifest
from fedray.engine import session
from fedray.engine.folder import RunFolder
from fedray.engine.resources import Share
from fedray.engine.store import ClientStore
from fedray.engine.work import Program
from fedray.training.tasks import TASKS

if TYPE_CHECKING:
    from fedray.experiment import Config


def read_corpus(config: Config, source: Source, parallel: Parallel | None = None) -> dict[str, Manifest]:
    """The manifests of the configuration's corpus, read or made; on Ray, unless `parallel` does without."""
    settings = config.data
    if settings.corpus not in CORPORA:
        raise ConfigError(f"{source.where('data.corpus')}: data.corpus: {settings.corpus!r} is not known; known: {', '.join(CORPORA)}")
    corpus = configuration.build(CORPORA[settings.corpus], source, "data.options", settings.options)
    if hasattr(corpus, "client_speakers_made") and settings.clients.by == "speaker":
        check_population(config, source, corpus.client_speakers_made())  # before minutes are spent on making it
    root = Path(settings.root).expanduser() if settings.root is not None else None
    splits: dict[str, Manifest] = corpus.read(root, settings.seed, cache_root() / "corpora", parallel or session.parallel)
    return splits


def build_data(config: Config, source: Source, parallel: Parallel | None = None) -> tuple[SpeechData, dict[str, str]]:
    """The federation, and the broken audio that `data.skip_broken` left out. A cohort too large is refused before features are made."""
    check = functools.partial(check_population, config, source)
    target = getattr(config.task, "label", "text")  # the column that label errors are made in
    splits = read_corpus(config, source, parallel)
    return federate(splits, config.data, config.features, cache_root() / "features", parallel or session.parallel, check, target)


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
    if ALGORITHMS[kind].own_alone:
        if not config.evaluation.own_final:
            raise ConfigError(f"algorithm.kind {kind} is seen in the clients' own scores alone: set evaluation.own_final=true")
        if config.cohort.count(len(data.client_ids())) < len(data.client_ids()):
            raise ConfigError(f"algorithm.kind {kind} asks every client once: set cohort={{size: null, fraction: 1.0}}")
    algorithm = ALGORITHMS[kind](config.algorithm, parts)
    algorithm.check(data)
    return algorithm


def build_program(config: Config, data: SpeechData, folder: RunFolder, gpus: float) -> Program:
    algorithm, values = build_algorithm(config, data), plain(config)
    init_cache = prepare_cache = None
    if algorithm.init_depends:
        code = code_version(config.imports)
        start = files_to_start_from(config.model)
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


def files_to_start_from(model: Any) -> list[tuple[str, int, int]]:
    """Name, bytes and time of what `model.init` and `model.folder` name."""
    given = [Path(getattr(model, name)) for name in ("init", "folder") if getattr(model, name, None) is not None]
    files = [file for path in given for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


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
