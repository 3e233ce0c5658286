"""The configuration of a run: its sections, and how it is loaded from YAML or from a mapping."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fedray.algorithms import ALGORITHMS
from fedray.config import schema, shipped
from fedray.config import source as sources
from fedray.config.source import ConfigError, Source
from fedray.core.algorithm import Algorithm
from fedray.core.attackers import ATTACKS
from fedray.core.compression.codes import Code
from fedray.core.compression.settings import DOWNLOADS, UPLOADS, Upload
from fedray.core.devices.settings import CLOCKS, DEVICES
from fedray.core.privacy.audits import AUDITS
from fedray.core.privacy.settings import PRIVACY
from fedray.core.ranges import Count, Ranged
from fedray.core.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from fedray.core.settings import Choice, choice, kinds
from fedray.core.strategies import STRATEGIES, Strategy
from fedray.core.texts import printable
from fedray.data.features.kinds import FEATURES
from fedray.data.features.settings import FeatureSettings
from fedray.data.federation.settings import DataSettings
from fedray.engine.driver import session
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.engine.telemetry.trackers import TRACKERS, Tracker
from fedray.experiment.derived import with_derived
from fedray.models import MODELS
from fedray.training.tasks import TASKS

T = TypeVar("T")
NAME_BYTES = 200  # of a run's name; file systems allow 255, and a time follows
Given = str | os.PathLike[str] | Mapping[str, Any]  # a YAML file, a shipped name, or a mapping


@dataclass(frozen=True)
class Config(Ranged):
    """A configuration file of `fedray run`."""

    cohort: CohortSettings
    name: str = "fedray"  # name of the run: a part of its folder's name, shown in reports
    seed: int = 0  # seed of all random draws except those of the corpus
    rounds: Count = 25  # federated rounds; a cosine schedule ends with the last
    imports: list[str] = field(default_factory=list)  # the user's modules, imported first: they add to the registries
    data: DataSettings = field(default_factory=DataSettings)  # corpus, clients, labels, noise
    features: FeatureSettings = kinds(FEATURES, "logmel")  # how a recording becomes the model's input
    task: Choice = choice(TASKS, "recognition")  # what is learnt
    model: Choice = choice(MODELS, "conformer")  # the network
    # auto: on CPUs, compiled loops train the parts of fedray's models that they fit | off: torch's and SpeechBrain's
    # modules, as on GPUs. The results are the same but for rounding.
    kernels: str | bool = "auto"
    algorithm: Choice = choice(ALGORITHMS)  # what client and server do in a round
    strategy: Strategy = kinds(STRATEGIES, "by_examples")  # how the cohort's updates become one change
    server_optimizer: ServerOptimizer = kinds(SERVER_OPTIMIZERS, "sgd")  # how the server applies the change
    upload: Upload = kinds(UPLOADS, "none")  # how clients encode their updates: fewer bytes
    download: Code = kinds(DOWNLOADS, "none")  # how the server encodes the model that clients train from: fewer bytes
    privacy: Any = kinds(PRIVACY, "none")  # differential privacy: bounds of updates, noise, and the guarantee
    devices: Any = kinds(DEVICES, "none")  # the clients' devices: speed, network, power, and when they can take part
    clock: Any = kinds(CLOCKS, "rounds")  # how the server waits for devices: in rounds, or for every few arrivals
    attack: Any = kinds(ATTACKS, "none")  # clients that send, or train on, what harms the model
    audit: Any = kinds(AUDITS, "none")  # candidates that show how much the released models leak
    engine: EngineSettings = field(default_factory=EngineSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    tracker: Tracker = kinds(TRACKERS, "none")  # a service that also gets the run's rows and results

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name)
        if self.kernels not in ("auto", "off", False):  # YAML reads off as false
            raise ValueError(f"kernels is auto or off, not {self.kernels!r}")


@dataclass(frozen=True)
class Audible:
    """The sections of a run's configuration that its audio depends on."""

    data: DataSettings = field(default_factory=DataSettings)
    features: FeatureSettings = kinds(FEATURES, "logmel")


def load(config: Given, overrides: Iterable[str] = (), folder: Path | None = None) -> tuple[Config, Source]:
    """Load a run's configuration, and check that every key is known and has the right type.

    `experiment.check` checks whatever else needs no data. Imports the modules that `imports` names, from `folder` too
    (None: the working folder).
    """
    return load_as(Config, config, overrides, folder)


def load_as(cls: type[T], config: Given, overrides: Iterable[str] = (), folder: Path | None = None) -> tuple[T, Source]:
    """Load a configuration of another dataclass, as `load` does."""
    source = (
        sources.from_mapping(config, overrides)
        if isinstance(config, Mapping)
        else sources.read(shipped.locate("configs", config), overrides)
    )
    _import(source, folder or Path.cwd())
    source = with_derived(cls, source)
    return schema.build(cls, source), source


def tell_replaced(config: object, source: Source) -> None:
    """Print a line to stderr for each section whose keys an override of its kind drops though both kinds know them."""
    values = schema.plain(config)
    for one in source.replaced:
        keys = [key for key in one.keys if schema.has(values, key)]
        if keys:
            print(
                f"{one.words}, whose other keys are dropped: {', '.join(keys)}; give them again to keep them",
                file=sys.stderr,
            )


def _import(source: Source, folder: Path) -> None:
    modules = source.values.get("imports")
    for module in modules if isinstance(modules, list) else []:
        if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
            raise ConfigError(
                f"{source.where('imports')}: imports: {module!r} is not a module name; write one such as my_module"
            )
        sys.path.insert(0, str(folder))
        try:
            session.ship(importlib.import_module(module))
        except Exception as error:  # whatever the user's module raises
            raise ConfigError(
                f"{source.where('imports')}: imports: {module} cannot be imported ({_mistake(error)}); {folder} is "
                "searched too"
            ) from error
        finally:
            sys.path.remove(str(folder))


def _mistake(error: Exception) -> str:
    """An error of a module, with the file and the line that raised it; an ImportError says enough by itself."""
    if isinstance(error, ImportError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    raised_at = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (frame.filename, frame.lineno)
    words = error.msg if isinstance(error, SyntaxError) else error
    return f"{raised_at[0]}, line {raised_at[1]}: {type(error).__name__}: {words}"


def check_name(name: str) -> None:
    """Check the name of a run. ValueError: it cannot be part of a folder's name."""
    if (
        name in ("", ".", "..")
        or len(name.encode()) > NAME_BYTES
        or re.search(r"[/\\]", name)
        or printable(name) != name
    ):
        raise ValueError(
            f"name is part of the run folder's name, so it cannot be {name!r}: leave out slashes and control "
            f"characters, and use at most {NAME_BYTES} bytes"
        )


def register(algorithms: Mapping[str, type[Algorithm]] | None) -> None:
    """Add a user's algorithms to the registry, and send their modules to the actors by value."""
    for kind, algorithm in (algorithms or {}).items():
        known = ALGORITHMS.get(kind, algorithm)
        if known is not algorithm and known.__module__.partition(".")[0] == "fedray":
            raise ValueError(f"algorithm.kind {kind!r} is taken by fedray's {known.__name__}: choose another name")
        ALGORITHMS[kind] = algorithm
        session.ship(sys.modules[algorithm.__module__])
