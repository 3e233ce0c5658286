"""From a configuration to what actors run: the federation, the algorithm with its task, and the program of both."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import cast

import numpy as np
import torch

from fedray.algorithms import ALGORITHMS
from fedray.config.source import Source
from fedray.core.algorithm import Algorithm, Parts
from fedray.core.attackers import Attack, Backdoor, Poisoning
from fedray.core.devices.settings import BufferedClock
from fedray.core.parallel import Parallel
from fedray.core.privacy.audits import Canaries, Inversion, Speakers, Updates, drawn
from fedray.core.settings import kind_of
from fedray.core.strategies import STRATEGIES
from fedray.core.types import OWN
from fedray.data.corpora.skipping import skipping
from fedray.data.features.dataset import collate
from fedray.data.federation.audited import audited
from fedray.data.federation.dealing import deal
from fedray.data.federation.groups import UNKNOWN, read_groups, speakers_of
from fedray.data.federation.observed import observed, speaker_values
from fedray.data.federation.poisoned import poison
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import SpeechData, divide, federate
from fedray.data.manifest import Manifest, Rows
from fedray.data.text.normalisation import watched
from fedray.engine.driver import session
from fedray.engine.jobs.work import Program, StateStore
from fedray.engine.round.plan import Plan
from fedray.experiment.attackers import check_target
from fedray.experiment.audits import outside, with_canaries
from fedray.experiment.cache_keys import caches
from fedray.experiment.checks import check_population, corpus_reader
from fedray.experiment.config import Config
from fedray.experiment.devices import build_clock
from fedray.experiment.fitted import together
from fedray.experiment.private import averages_statistics, mechanism
from fedray.models import kernels
from fedray.storage.cache import cache_root
from fedray.training.large import LARGE
from fedray.training.recogniser_checks import effect_of_padding
from fedray.training.recognisers import Recogniser
from fedray.training.speech_to_text import SpeechToText
from fedray.training.task import Task
from fedray.training.tasks import TASKS


def read_corpus(data: DataSettings, source: Source, parallel: Parallel | None = None) -> dict[str, Manifest]:
    """Read or synthesise the corpus: split -> manifest. `parallel`: how items are spread (None: over Ray)."""
    root = Path(data.root).expanduser() if data.root is not None else None
    reader = corpus_reader(data, source)
    with skipping(data.skip_broken):
        splits: dict[str, Manifest] = reader.read(
            root, data.seed, cache_root() / "corpora", parallel or session.parallel
        )
    return splits


def read_federation(config: Config, source: Source) -> tuple[dict[str, Manifest], dict[str, Rows]]:
    """Part ("server", "clients", "dev", "test", ...) -> manifest, and client -> its rows of "clients".

    No audio is read. Raises ValueError if a run would refuse the configuration or the corpus.
    """
    splits, data = with_canaries(read_corpus(config.data, source), config, cache_root() / "corpora", session.parallel)
    server, mine, scored = divide(splits, data)
    clients, own, _ = deal(mine, data)
    scored |= {OWN: own} if own is not None else {}
    left_out = outside(list(clients), config.audit, data.seed)
    clients = {client: rows for client, rows in clients.items() if client not in left_out}
    return ({"server": server} if server is not None else {}) | {"clients": mine} | scored, clients


def build_data(config: Config, source: Source, parallel: Parallel | None = None) -> tuple[SpeechData, dict[str, str]]:
    """The federation, and the broken audio that `data.skip_broken` leaves out (utterance -> why).

    ConfigError, raised before features are computed: the cohort is larger than the population.
    """
    parallel = parallel or session.parallel
    check = functools.partial(check_population, config, source)
    target = TASKS[config.task.kind].column(config.task.settings)  # `data.corruption` puts wrong labels in it
    rules: dict[str, None] = {}
    with watched(lambda by, before, after: rules.update({by.name: None})):
        splits = read_corpus(config.data, source, parallel)
    groups = read_groups(config.data.groups, splits)
    splits, divided = with_canaries(splits, config, cache_root() / "corpora", parallel)
    data, broken = federate(splits, divided, config.features, cache_root() / "features", parallel, check, target)
    canaries = speakers_of(splits) - set(groups) if groups else ()
    data.rules, data.groups = list(rules), groups | dict.fromkeys(sorted(canaries), UNKNOWN)
    if isinstance(config.audit, Canaries | Speakers):
        data = audited(data, config.audit, divided.seed)
        check(len(data.client_ids()))
    elif isinstance(config.audit, Updates):
        known = corpus_reader(config.data, source)
        values = known.attributes(config.data.seed) if hasattr(known, "attributes") else {}
        data = observed(data, config.audit, divided.seed, speaker_values(config.audit, splits, values))
        check(len(data.client_ids()))
    elif isinstance(config.audit, Inversion):
        drawn(data.client_ids(), config.audit, config.seed)  # raises ValueError before the run, not after its end
    if isinstance(config.attack, Attack):
        attackers = config.attack.chosen(data.client_ids(), config.seed)
        if isinstance(config.attack, Backdoor):
            check_target(config.attack, build_task(config, data))
        if isinstance(config.attack, Poisoning):
            store = cache_root() / "features"
            data = poison(data, config.attack, attackers, target, config.seed, config.features, store, parallel)
    return data, broken


def build_task(config: Config, data: SpeechData) -> Task:
    """The task, with its classes or tokens. ValueError: the federation lacks what it needs."""
    return TASKS[config.task.kind](config.task.settings, config.model, config.features, data)


def build_algorithm(config: Config, data: SpeechData) -> Algorithm:
    """The algorithm with its task. ValueError: the federation lacks what one of them needs."""
    task = build_task(config, data)
    task.kernels = config.kernels == "auto"
    kernels.switch(task.kernels)
    parts = Parts(task, config.strategy, config.server_optimizer, config.rounds)
    algorithm = ALGORITHMS[config.algorithm.kind](config.algorithm.settings, parts)
    algorithm.check(data)
    return algorithm


def check_statistics(config: Config, algorithm: Algorithm) -> None:
    """Check the clock and the strategy. ValueError: running statistics of batch norm would not be averaged.

    An update of a variance is relative to the model that its client received. Several such updates added to a later
    model, or weights whose sum is above 1, can make the variance negative, and the model's outputs NaN.
    """
    if not averages_statistics(config, algorithm):
        return
    buffered, absolute = isinstance(config.clock, BufferedClock), config.strategy.absolute
    if buffered or absolute:
        which = "clock.kind=buffered" if buffered else f"strategy.kind {kind_of(config.strategy, STRATEGIES)}"
        raise ValueError(
            f"{which} cannot average the running statistics of batch norm, which model.kind {config.model.kind} has: "
            "set algorithm.buffers=frozen"
        )


def warn_of_padding(task: Task, data: SpeechData) -> None:
    """Print a line if padding changes the outputs of a user's recogniser: a score then depends on the other utterances.

    fedray's own models are known to mask padding.
    """
    ours = task.model_class.__module__.startswith("fedray.") and not hasattr(task.model_class, "built_elsewhere")
    if not isinstance(task, SpeechToText) or ours:
        return
    speech = data.training()[-1]
    middle = np.argsort(speech.lengths, kind="stable")[[len(speech) // 2]]
    with torch.random.fork_rng(devices=[]):  # no bit of the run depends on this check
        torch.manual_seed(0)
        model = task.model().eval()
        effect = effect_of_padding(cast(Recogniser, model), collate(speech, middle).features)
    if effect is not None:
        print(
            f"{task.model_class.__name__} reads padding: beside a longer utterance, {effect}. Scores then depend on "
            "which utterances share a batch: mask the frames beyond each length",
            file=sys.stderr,
        )


def build_program(config: Config, data: SpeechData, states: StateStore, gpus: float) -> Program:
    """Build the program that the driver and the actors of a run get. `gpus`: of a client actor."""
    judge = config.evaluation.judge
    if judge == "personal" and not {"dev", OWN} & set(data.splits()):
        raise ValueError(
            f"evaluation.best={config.evaluation.best} needs a split to score personal models on, and there is neither "
            "dev nor own: set data.dev_share or data.own_share"
        )
    if judge != "personal" and judge not in data.splits():
        remedy = "set data.own_share" if judge == OWN else "set data.dev_share"
        for key in ("best", "patience"):
            if getattr(config.evaluation, key) is not None:
                raise ValueError(
                    f"evaluation.{key} needs scores of the split {judge}, and there is none: {remedy}, or leave out "
                    f"evaluation.{key}"
                )
    algorithm = build_algorithm(config, data)
    check_statistics(config, algorithm)
    warn_of_padding(algorithm.task, data)
    mechanism(config, algorithm, data)  # these raise their errors before a folder is made
    build_clock(config, data)
    init_cache, prepare_cache = caches(config, algorithm, data, bool(gpus))
    large = algorithm.task.layout.size >= LARGE
    return Program(
        algorithm, data, config.seed, states, init_cache, prepare_cache, config.upload, config.download, large
    )


def build_plan(config: Config, program: Program, gpus: float) -> Plan:
    """Build the plan of a run. `gpus`: of a client actor."""
    beside = together(config, gpus > 0)
    privacy, clock = mechanism(config, program.algorithm, program.data), build_clock(config, program.data)
    sections = config.cohort, config.engine, config.evaluation
    return Plan(config.rounds, *sections, beside, privacy, clock, config.audit, config.attack)
