"""Checks of a configuration that need no data, before minutes are spent on making or reading them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from fedray.algorithms import ALGORITHMS
from fedray.config.schema import build_section
from fedray.config.source import ConfigError, Source
from fedray.core.algorithm import Algorithm, Setup
from fedray.core.devices.settings import NoDevices
from fedray.core.privacy.audits import Updates
from fedray.core.schedules import Schedule
from fedray.core.settings import Choice, kind_of
from fedray.core.strategies import STRATEGIES, Agnostic, ByWer, FLTrust
from fedray.data.corpora import CORPORA
from fedray.data.federation.settings import DataSettings
from fedray.experiment.attackers import check_attack
from fedray.experiment.audits import check_audit
from fedray.experiment.codes import check_code
from fedray.experiment.config import Config
from fedray.experiment.devices import check_clients, check_clock, check_devices, with_paths
from fedray.experiment.fitted import together
from fedray.experiment.private import check_installed, check_privacy
from fedray.models import MODELS
from fedray.models.checkpoint import check_weights, fetch, is_on_hub
from fedray.models.encoder_states import EncoderSettings, checkpoint_of
from fedray.models.speechbrain_folder import SpeechBrainSettings
from fedray.models.speechbrain_folder import checked_folder as checked_speechbrain
from fedray.models.weights import read_weights
from fedray.models.whisper import WhisperSettings, checked_folder
from fedray.training.tasks import TASKS

PATHS = {"init": "file", "folder": "folder"}  # keys of a model that hold paths -> what must be there


def check(config: Config, source: Source, base: Path = Path()) -> Config:
    """Check a configuration, and return it with absolute paths and a complete tracker.

    Actors and a resume from another folder need both. `base`: the folder that its paths are relative to. ConfigError:
    sections do not fit together, or a path does not exist.
    """
    check_setup(config, source)
    text = _checked_path(config.data.text, "data.text", source, base)
    groups = replace(config.data.groups, file=_checked_path(config.data.groups.file, "data.groups.file", source, base))
    data = replace(config.data, root=checked_root(config.data, source, base), text=text, groups=groups)
    algorithm, files = config.algorithm, ALGORITHMS[config.algorithm.kind].files
    if files:
        names = {name: getattr(algorithm.settings, name) for name in files}
        checked = {name: _checked_path(given, f"algorithm.{name}", source, base) for name, given in names.items()}
        algorithm = Choice(algorithm.kind, replace(algorithm.settings, **checked))
    with _at(source, "privacy.kind"):
        check_installed(config.privacy)
    with _at(source, "devices.file"):
        devices = with_paths(config.devices, lambda given, key: _checked_path(given, key, source, base))
    with _at(source, "tracker"):
        tracker = config.tracker.checked(base)
    model = _with_paths(config.model, source, base)
    features = config.features
    if (given := getattr(features, "path", None)) is not None:
        what = "folder" if (base / Path(given).expanduser()).is_dir() else "file"
        features = replace(cast(Any, features), path=_checked_path(given, "features.path", source, base, what))
    audit = config.audit
    if isinstance(audit, Updates):
        audit = replace(audit, file=_checked_path(audit.file, "audit.file", source, base))
    return replace(
        config, data=data, features=features, algorithm=algorithm, model=model, devices=devices, audit=audit,
        tracker=tracker,
    )  # fmt: skip


def check_setup(config: Config, source: Source) -> None:
    """Check that sections fit together, without looking at any file. ConfigError: they do not."""
    most = most_clients(config.data, corpus_reader(config.data, source))
    if most is not None:
        check_population(config, source, most)
    with _at(source, "model.kind"):
        TASKS[config.task.kind].check_setup(config.task.settings, config.model, config.features)
    with _at(source, "algorithm.kind"):
        _check_algorithm(config, most)
    with _at(source, "engine.vectorise"):
        together(config, gpu=False)
    for name in ("upload", "download"):
        with _at(source, f"{name}.kind"):
            check_code(config, name)
    with _at(source, "privacy.kind"):
        check_privacy(config)
    with _at(source, "devices.kind"):
        check_devices(config)
    with _at(source, "clock.kind"):
        check_clock(config)
    with _at(source, "attack.kind"):
        check_attack(config)
    with _at(source, "audit.kind"):
        check_audit(config)


def _check_algorithm(config: Config, most: int | None) -> None:
    kind, settings = config.algorithm.kind, config.algorithm.settings
    algorithm, setup = ALGORITHMS[kind], setup_of(config)
    algorithm.check_setup(settings, setup)
    if algorithm.central and most != 1:
        raise ValueError(f"algorithm.kind {kind} trains in one place: set data.clients.by=pooled and cohort.size=1")
    personal = getattr(settings, "personal", ())
    if personal and (algorithm.central or not algorithm.sends_updates):
        raise ValueError(f"algorithm.kind {kind} sends no updates: leave out algorithm.personal")
    if (algorithm.judged_personally or personal) and not setup.scores_personal:
        what = f"algorithm.kind {kind}" if algorithm.judged_personally else "algorithm.personal"
        raise ValueError(f"{what} is judged by personal scores alone: set evaluation.personal_final=true")
    if not algorithm.sends_updates and not setup.whole_population:
        raise ValueError(
            f"algorithm.kind {kind} needs every client in its round: set cohort={{size: null, fraction: 1.0, "
            "availability: 1.0, dropout: 0.0}, and leave out devices"
        )
    if isinstance(config.strategy, ByWer) and not algorithm.reports_wer:
        raise ValueError(
            f"algorithm.kind {kind} reports no word error rates, by which strategy.kind by_wer weighs: choose gao, or "
            "another strategy"
        )
    if isinstance(config.strategy, Agnostic) and config.data.groups.column is None:
        raise ValueError("strategy.kind agnostic weighs groups of clients, and there are none: set data.groups")
    if isinstance(config.strategy, FLTrust) and algorithm.server_train is Algorithm.server_train:
        raise ValueError(
            f"strategy.kind fltrust compares clients with what the server trains, and algorithm.kind {kind} trains "
            "nothing there: choose fedavg, or another strategy"
        )
    clips = config.strategy.clip_norm is not None
    if clips and isinstance(config.strategy, FLTrust):
        raise ValueError("strategy.kind fltrust gives all updates one length, so clip_norm has no effect: leave it out")
    if config.strategy.absolute and (algorithm.unscaled or algorithm.sends_more):
        raise ValueError(
            f"algorithm.kind {kind} needs a mean of its clients' updates, and strategy.kind "
            f"{kind_of(config.strategy, STRATEGIES)} gives the sum a length of its own: choose another strategy"
        )
    if clips and algorithm.unscaled:
        raise ValueError(f"algorithm.kind {kind} needs updates as clients send them: leave out strategy.clip_norm")
    if algorithm.makes_labels and config.data.corruption.label_errors and not config.data.labelled.given:
        raise ValueError(
            f"algorithm.kind {kind} reads none of the clients' labels, so data.corruption.label_errors has no effect: "
            "remove it, or set data.labelled"
        )
    if config.data.labelled.given and not (algorithm.makes_labels or getattr(settings, "labelled_only", False)):
        raise ValueError(
            f"algorithm.kind {kind} trains on every true label, so data.labelled has no effect: remove it, or choose "
            "fedavg with labelled_only=true"
        )
    schedule = getattr(settings, "schedule", None)
    if isinstance(schedule, Schedule):
        schedule.check(config.rounds)


def setup_of(config: Config) -> Setup:
    """The configuration as an algorithm judges it."""
    return Setup(
        task_class=TASKS[config.task.kind],
        task=config.task.settings,
        model_class=MODELS[config.model.kind],
        model=config.model.settings,
        strategy=config.strategy,
        server_optimizer=config.server_optimizer,
        rounds=config.rounds,
        whole_population=config.cohort.whole and isinstance(config.devices, NoDevices),
        scores_personal=config.evaluation.personal_final,
    )


def most_clients(data: DataSettings, corpus: Any) -> int | None:
    """The largest number of clients there can be; None if the configuration does not say."""
    if data.clients.by in ("pooled", "server"):
        return 1
    if data.clients.count is not None:
        return data.clients.count
    if data.clients.by == "speaker" and hasattr(corpus, "client_speakers_made"):
        made: int = corpus.client_speakers_made()
        return made
    return None


def corpus_reader(data: DataSettings, source: Source) -> Any:
    """The reader of the corpus, a dataclass built from `data.options`. ConfigError: the corpus is not known."""
    if data.corpus not in CORPORA:
        raise ConfigError(
            f"{source.where('data.corpus')}: data.corpus: {data.corpus!r} is not known; known: {', '.join(CORPORA)}"
        )
    return build_section(CORPORA[data.corpus], source, "data.options", data.options)


def check_population(config: Config, source: Source, population: int) -> None:
    """Check the size of the population. ConfigError: a cohort or the clock takes more clients than there are."""
    with _at(source, "cohort.size"):
        config.cohort.count(population)
    with _at(source, "clock.concurrency"):
        check_clients(config, population)


def checked_root(data: DataSettings, source: Source, base: Path = Path()) -> str | None:
    """The absolute path of `data.root`. ConfigError: it is not a folder."""
    return _checked_path(data.root, "data.root", source, base, what="folder")


def _checked_path(given: str | None, key: str, source: Source, base: Path, what: str = "file") -> str | None:
    """The absolute path of the file or folder that a key names. ConfigError: it does not exist."""
    if given is None:
        return None
    path = (base / Path(given).expanduser()).resolve()
    if not (path.is_file() if what == "file" else path.is_dir()):
        raise ConfigError(f"{source.where(key)}: {key}: there is no {what} {path}")
    return str(path)


def _with_paths(model: Choice, source: Source, base: Path) -> Choice:
    """The model with absolute paths of the weights it starts from."""
    settings = model.settings
    if isinstance(given := getattr(settings, "folder", None), str) and is_on_hub(given):
        with _at(source, "model.folder"):
            settings = replace(settings, revision=fetch(given, settings.revision))
    for name, what in PATHS.items():
        if name == "folder" and settings is not model.settings:  # a name, which the cache of Hugging Face holds
            continue
        key = f"model.{name}"
        if (path := _checked_path(getattr(settings, name, None), key, source, base, what)) is not None:
            if what == "file":
                with _at(source, key):
                    read_weights(Path(path), "meta")
            settings = replace(settings, **{name: path})
    if isinstance(settings, WhisperSettings):
        with _at(source, "model.folder"):
            check_weights(checked_folder(settings))
    if isinstance(settings, SpeechBrainSettings):
        with _at(source, "model.folder"):
            checked_speechbrain(settings)
    if isinstance(settings, EncoderSettings):
        with _at(source, "model.folder"):
            check_weights(checkpoint_of(settings).folder)
    return Choice(model.kind, settings)


@contextmanager
def _at(source: Source, key: str) -> Iterator[None]:
    """Turn a ValueError into a ConfigError that begins with the place of a key."""
    try:
        yield
    except ConfigError:  # it already names its place
        raise
    except ValueError as error:
        raise ConfigError(f"{source.where(key)}: {error}") from error
