"""Settings that would void the privacy guarantee are refused with a message."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fedray.config.source import ConfigError
from fedray.core.privacy.accounting import Sampling
from fedray.experiment import build_algorithm, build_data, check_setup, load
from fedray.experiment.audits import population
from fedray.experiment.private import guarantee_of, learnt_from, mechanism
from fedray.training.recognition import Recognition, RecognitionSettings
from fedray.training.translation import Translation, TranslationSettings
from tests import speech

PRIVATE = ["privacy={kind: gaussian, noise: 1.0, delta: 1e-5}", "strategy.kind=uniform", "cohort.sampling=poisson"]


def refused(*overrides: str, config: str = "fedavg/keywords") -> str:
    loaded, source = load(config, [*PRIVATE, *overrides])
    with pytest.raises(ConfigError) as error:
        check_setup(loaded, source)
    return str(error.value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("strategy.kind=by_examples", "one client could move the result by more than its share"),
        ("strategy.kind=median", "one client could move the result by more than its share"),
        ("strategy.clip_norm=1.0", "leave out strategy.clip_norm"),
        ("cohort.sampling=weighted", "the privacy account needs cohort.sampling poisson or uniform, not weighted"),
        ("cohort.sampling=cyclic", "the privacy account needs cohort.sampling poisson or uniform, not cyclic"),
        ("cohort={size: 4, sampling: uniform, availability: 0.5}", "the privacy account needs cohort.availability=1"),
        ("privacy={kind: correlated, noise: 1.0, delta: 1e-5}", "the privacy account needs cohort.sampling cyclic"),
    ],
)
def test_a_setting_that_voids_the_guarantee(override: str, words: str) -> None:
    assert words in refused(override)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("scaffold/embedded", "shares more than the sum of its clients' updates"),
        ("fedmem/embedded", "shares no updates"),
        ("fednst/baselines/sl", "trains in one place"),
    ],
)
def test_an_algorithm_that_is_not_covered(config: str, words: str) -> None:
    assert words in refused(config=config)


def test_a_private_configuration_passes() -> None:
    check_setup(*load("fedavg/keywords", PRIVATE))


def test_the_account_is_of_the_cohorts_that_are_drawn() -> None:
    """The account includes the limit of the cohorts, and the canaries, which are clients too."""
    drawn = ["cohort.size=10", "cohort.limit=12", "audit={kind: directions, clients: 20}"]
    config, _ = load("fedavg/keywords", [*PRIVATE, *drawn])
    clients = population(config, 1_000)
    assert clients == 1_000 + len(config.audit.inside(config.seed)) > 1_000
    found = guarantee_of(config, config.privacy, clients)
    assert found.simulated.sampling == found.claimed.sampling == Sampling("poisson", 10, clients, 12)


def test_delta_is_for_the_federation_that_a_run_stands_for() -> None:
    config, _ = load("fedavg/keywords", [*PRIVATE, "privacy.as_if={cohort: 1000, population: 1000000}"])
    with pytest.raises(ValueError, match="privacy.delta must be below 1 / population, 1e-06"):
        guarantee_of(config, config.privacy, 2_000)


def test_section_values_are_checked() -> None:
    cases: dict[str, Any] = {
        "{kind: gaussian, noise: 1.0}": "privacy.delta is missing",
        "{kind: gaussian, delta: 1e-5}": "set epsilon (the guarantee) or noise (the multiplier z): both are null",
        "{kind: gaussian, delta: 1e-5, noise: 1, epsilon: 8}": "are both set: unset one, with epsilon=null",
        "{kind: gaussian, delta: 2, noise: 1}": "delta must be above 0 and below 1",
        "{kind: skellam, noise: 1.0, delta: 1e-5, bits: 64}": "bits must be at least 2 and at most 32",
        "{kind: gaussian, noise: 1.0, delta: 1e-5, clip: {layers: all}}": "layers must be one of",
        "{kind: gaussian, noise: 1.0, delta: 1e-5, as_if: {cohort: 5}}": "as_if needs both",
    }
    for given, words in cases.items():
        with pytest.raises(ConfigError, match=re.escape(words)):
            load("fedavg/keywords", [f"privacy={given}"])


def test_tokens_from_the_clients_are_refused(no_ray: None, tmp_path: Path) -> None:
    speech.write_corpus(tmp_path)
    given = speech.settings(tmp_path)
    given["data"].pop("server")
    given["algorithm"] = {"kind": "fedavg", "buffers": "frozen", "pretrain": {"steps": 0}}
    config, source = load(
        given, [*PRIVATE, "privacy.delta=1e-3", "cohort={size: null, fraction: 0.5, sampling: poisson}"]
    )
    data, _ = build_data(config, source)
    with pytest.raises(ValueError, match="learnt from the clients' transcripts, which no noise covers: set data.text"):
        mechanism(config, build_algorithm(config, data), data)


@pytest.mark.parametrize(
    ("kind", "settings", "made", "wanted"),
    [
        (Recognition, RecognitionSettings(), {"language_model": object()}, {"text"}),
        (Recognition, RecognitionSettings(tokens="pretrained"), {"language_model": None}, set()),  # Whisper
        (Recognition, RecognitionSettings(tokens="pretrained"), {"language_model": object()}, {"text"}),
        (Translation, TranslationSettings(), {"transcripts": None}, {"translation"}),
        (Translation, TranslationSettings(), {"transcripts": object()}, {"translation", "text"}),
        (Translation, TranslationSettings(tokens="pretrained", transcript_tokens="pretrained"), {}, set()),
    ],
)
def test_what_tokens_and_language_models_are_learnt_from(kind: Any, settings: Any, made: Any, wanted: set[str]) -> None:
    task = kind.__new__(kind)
    vars(task).update(made, settings=settings)
    assert learnt_from(task) == wanted


@pytest.mark.parametrize(
    ("privacy", "sampling", "words"),
    [
        (
            "{kind: gaussian, noise: 1, delta: 1e-5, clip: {kind: adaptive, layers: uniform, count_noise: 0.5}}",
            "poisson",
            r"the noisy counts of \d+ adaptive bounds spend more than noise 1 allows: raise privacy.clip.count_noise",
        ),
        ("{kind: skellam, noise: 1, delta: 1e-5, bits: 8}", "uniform", "privacy.bits=8 is too few"),
    ],
)
def test_noise_that_no_round_could_add_is_refused_before_a_seed_model(
    no_ray: None, privacy: str, sampling: str, words: str
) -> None:
    changes = [f"privacy={privacy}", "strategy.kind=uniform", f"cohort.sampling={sampling}", "cohort.size=2"]
    small = [f"data.options.{kind}_speakers=2" for kind in ("client", "dev", "test")]
    config, source = load("fedavg/keywords", [*changes, *small])
    data, _ = build_data(config, source)
    with pytest.raises(ValueError, match=words):
        mechanism(config, build_algorithm(config, data), data)
