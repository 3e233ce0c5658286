"""From the section `privacy` of a configuration to the mechanism of a run; refuses what would void the guarantee."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

from fedray.algorithms import ALGORITHMS
from fedray.core.algorithm import Algorithm
from fedray.core.privacy.accounting import MISSING, Sampling
from fedray.core.privacy.clipping import Clipping
from fedray.core.privacy.factorisation import coefficients
from fedray.core.privacy.guarantee import Guarantee
from fedray.core.privacy.mechanism import Mechanism
from fedray.core.privacy.settings import Correlated, NoPrivacy, Private
from fedray.core.strategies import Uniform
from fedray.core.types import FederatedData
from fedray.experiment.audits import population
from fedray.experiment.config import Config
from fedray.training.speech_to_text import SpeechToText


def check_privacy(config: Config) -> None:
    """Check `privacy`. ValueError: one client could move a round's result beyond its bound, or the account is wrong."""
    settings, cohort = config.privacy, config.cohort
    if isinstance(settings, NoPrivacy):
        return
    algorithm = ALGORITHMS[config.algorithm.kind]
    if algorithm.central or not algorithm.sends_updates or algorithm.sends_more:
        shares = "more than the sum of its clients' updates" if algorithm.sends_updates else "no updates"
        why = "trains in one place" if algorithm.central else f"shares {shares}"
        raise ValueError(
            f"algorithm.kind {config.algorithm.kind} {why}, so privacy cannot cover it: set privacy.kind=none"
        )
    if not isinstance(config.strategy, Uniform):
        raise ValueError(
            "one client could move the result by more than its share: set strategy.kind=uniform, under which every "
            "client weighs the same"
        )
    if config.strategy.clip_norm is not None:
        raise ValueError("privacy.clip bounds the updates: leave out strategy.clip_norm")
    if cohort.sampling not in settings.samplings:
        fitting = " or ".join(settings.samplings)
        raise ValueError(f"the privacy account needs cohort.sampling {fitting}, not {cohort.sampling}")
    if cohort.availability < 1:
        raise ValueError("the privacy account needs cohort.availability=1: clients must be equally likely to take part")


def check_installed(privacy: Any) -> None:
    """Check that the package that computes epsilon is installed. ValueError: it is missing."""
    if isinstance(privacy, Private) and find_spec("dp_accounting") is None:
        raise ValueError(MISSING)


def paced_by(config: Config, algorithm: Algorithm) -> str | None:
    """What depends on the number of rounds, in words: a part of the algorithm or of `privacy`. None: nothing."""
    settings = config.privacy
    if isinstance(settings, Correlated) or isinstance(settings, Private) and settings.epsilon is not None:
        return "the noise of privacy"
    return algorithm.paced_by()


def averages_statistics(config: Config, algorithm: Algorithm) -> bool:
    """Whether clients average running statistics of batch norm."""
    layout = getattr(algorithm.task, "layout", None)
    averaged = getattr(config.algorithm.settings, "buffers", "frozen") == "averaged"
    return averaged and layout is not None and layout.moving > layout.trainable


def learnt_from(task: Any) -> set[str]:
    """The columns of texts that tokens and language model are learnt from: text, translation."""
    if not isinstance(task, SpeechToText):
        return set()
    settings: Any = task.settings
    found = set() if settings.tokens == "pretrained" else {task.column(settings)}
    by_ctc = getattr(task, "transcripts", None) is not None and settings.transcript_tokens != "pretrained"
    return found | ({"text"} if by_ctc or getattr(task, "language_model", None) is not None else set())


def mechanism(config: Config, algorithm: Algorithm, data: FederatedData) -> Mechanism | None:
    """The mechanism of a run; None: it is not private. ValueError: the guarantee would be empty, or cannot be given."""
    settings, clients = config.privacy, population(config, len(data.client_ids()))
    if not isinstance(settings, Private):
        return None
    if averages_statistics(config, algorithm):
        raise ValueError(
            "the running statistics of batch norm would be averaged and made noisy as if they were gradients: set "
            "algorithm.buffers=frozen"
        )
    if data.server() is None and (learnt := learnt_from(algorithm.task) - ({"text"} if config.data.text else set())):
        translations = "translation" in learnt  # no setting names a file with some
        raise ValueError(
            f"tokens or language model would be learnt from the clients' "
            f"{'translations' if translations else 'transcripts'}, which no noise covers: set "
            f"{'task.tokens=pretrained' if translations else 'data.text to a file of sentences'}, or data.server"
        )
    guarantee = guarantee_of(config, settings, clients)
    weights = tuple(coefficients(settings.bands).tolist()) if isinstance(settings, Correlated) else (1.0,)
    made = Mechanism(settings, guarantee.noise, config.cohort.expected(clients), weights, guarantee)
    if (layout := getattr(algorithm.task, "layout", None)) is not None:
        # What rounds check again, here before a seed model is trained. Only rounds know the exact size of an update.
        made.simulated_noise(len(Clipping(settings.clip, algorithm.layers(), layout.trainable).names))
        made.encoding(layout.trainable, math.ceil(made.cohort))
    return made


def guarantee_of(config: Config, privacy: Private, clients: int) -> Guarantee:
    """The guarantee of a run over so many clients.

    ValueError: it would be empty, no noise gives it, or its cohorts have no account.
    """
    claimed = privacy.as_if.population or clients
    if privacy.delta >= 1 / claimed:
        raise ValueError(
            f"privacy.delta must be below 1 / population, {1 / claimed:.2g}: otherwise a mechanism that publishes one "
            "client would pass"
        )
    cohort = config.cohort
    sampling = Sampling(cohort.sampling, cohort.expected(clients), clients, cohort.limit)
    return Guarantee.of(privacy, sampling, config.rounds)
