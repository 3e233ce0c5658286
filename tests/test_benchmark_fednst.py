"""The studies of FedNST's confounds and of digits: arms are valid, and are compared with those that differ in one."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import study
from benchmarks.studies import fednst_confounds, fednst_digits
from benchmarks.studies.fednst_confounds import ARMS, known
from fedray import experiment
from fedray.data.corpora.synthesis.embedded import Embedded
from fedray.experiment import Config

CHOSEN = argparse.Namespace(rounds=50, actors=1, runs=Path("runs"))
RATE = 0.025


def configured(arm: str) -> Config:
    config, source = experiment.load(
        study.ROOT / fednst_confounds.CONFIG, fednst_confounds.overrides(arm, 0, RATE, CHOSEN)
    )
    experiment.check_setup(config, source)
    return config


def clients_step(config: Config) -> float:
    """The factor of the clients' mean update in a round."""
    return float(config.server_optimizer.lr * (1 - config.algorithm.settings.alpha))


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_is_a_valid_configuration(arm: str) -> None:
    config, of = configured(arm), ARMS[arm]
    assert config.rounds == 50 and not any(one and one not in ARMS for one in (of.reference, of.twin))
    assert bool(of.rates) == any("RATE" in one for one in of.given) and (
        not of.rates or of.rates in fednst_confounds.RATES
    )
    assert (config.data.labelled.clients == 1) == arm.endswith("transcripts")
    if of.twin:
        assert set(of.given) - {"task.decode.search=greedy"} == {*ARMS[of.twin].given} - {fednst_confounds.TRANSCRIPTS}
    if not arm.startswith("server rate"):
        assert clients_step(config) == pytest.approx(0.7, abs=1e-5)


def test_passes_over_all_of_the_servers_speech_take_the_rate_that_dev_chose() -> None:
    settings = configured(fednst_confounds.ALL).algorithm.settings
    assert settings.server.utterances is None and settings.server.lr == RATE
    assert configured(fednst_confounds.FEDNST).algorithm.settings.server.lr == 0.1
    assert configured("lambda 0.25 of the rounds").algorithm.settings.schedule.decay_steps == 12


def test_central_training_has_as_many_utterances_as_the_clients_alone() -> None:
    def seen(arm: str) -> float:
        config, recipe = configured(arm), Embedded()
        clients = config.data.clients.count or recipe.client_speakers
        a_client = recipe.client_speakers * recipe.client_utterances / clients
        return config.rounds * config.cohort.size * a_client * config.algorithm.settings.client.epochs

    assert seen("central SGD") == seen("clients alone") == 36_000


def test_a_stronger_seed_model_learns_no_more_text() -> None:
    assert configured(fednst_confounds.STRONG).data.text == "runs/seed-0.txt"


@pytest.mark.parametrize("arm", fednst_digits.ARMS)
def test_every_arm_on_digits_is_a_valid_configuration(
    arm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fsdd").mkdir()
    monkeypatch.setenv("FEDRAY_SPEECH", str(tmp_path))
    rate = RATE if arm in fednst_digits.ALPHAS else None
    overrides = fednst_digits.overrides(arm, 0, rate, CHOSEN)
    config, source = experiment.load(study.ROOT / "configs/fednst" / fednst_digits.ARMS[arm][0], overrides)
    experiment.check_setup(config, source)
    if arm in (fednst_digits.FEDNST, fednst_digits.CLIENTS, *fednst_digits.ALPHAS):
        assert clients_step(config) == pytest.approx(0.7, abs=1e-5)
        assert config.algorithm.settings.relabel == "once"
    if rate:
        assert config.algorithm.settings.server.utterances is None and config.algorithm.settings.server.lr == rate


def run(
    seed: int, errors: int, scores: tuple[str, ...] = ("test/wer", "test/wer_lm"), start: int = 8
) -> dict[str, object]:
    best = {"round": 40, "dev/wer": 20.0} | {score: 10.0 * errors for score in scores}
    found = {f"{model} {score}": study.packed({"ann": (10, wrong)}) for score in scores
             for model, wrong in (("seed", start), ("best", errors))}  # fmt: skip
    return {"seed": seed, "rate": None, "best": best, "rounds": 50, "labels": 11.0, **found}


def test_an_arm_is_compared_with_its_reference_and_its_twin_over_common_seeds() -> None:
    found = {
        "FedNST": [run(0, 4), run(1, 5)],
        known("FedNST"): [run(0, 2)],
        "clients alone": [run(0, 5), run(1, 5, start=9)],  # seed 1 is of another processor
        "greedy labels": [run(0, 6, ("test/wer",))],
        "strong seed model": [run(0, 1)],
    }
    rows = {arm: fednst_confounds.row(arm, found) for arm in found}
    fednst, greedy = rows["FedNST"], rows["greedy labels"]
    assert fednst["test, LM"] == "45.0 ± 7.1" and fednst["labels' WER, mean of all rounds"] == "11.0"
    assert fednst["compared with"] == "clients alone" and fednst["against it, LM"].startswith("-20.0 %")
    assert fednst["of the transcripts' gain, greedy (%)"].startswith("66.7")  # 4 of 6 errors of seed 0
    assert greedy["test, LM"] == greedy["against it, LM"] == greedy["of the transcripts' gain, LM (%)"] == ""
    assert greedy["against it, greedy"].startswith("+50.0 %")
    assert greedy["of the transcripts' gain, greedy (%)"].startswith("33.3")
    strong = rows["strong seed model"]
    assert strong["against it, LM"] == strong["of the transcripts' gain, LM (%)"] == ""


def test_a_rate_is_the_best_on_dev_of_those_that_are_not_tried_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, float]] = []

    def train(arm: str, seed: int, lr: float, place: Path, chosen: argparse.Namespace) -> dict[str, dict[str, float]]:
        tried.append((arm, lr))
        assert seed == 0 and f"{lr:g}".replace(".", "-") in place.name
        return {"best": {"dev/wer": 40 + lr}}

    monkeypatch.setattr(fednst_confounds, "train", train)
    tuned = {fednst_confounds.ALL: {"0.006": 40.006}}
    assert fednst_confounds.rate_of("FedNST", tuned, CHOSEN) is None and not tried
    assert fednst_confounds.rate_of(fednst_confounds.ALL, tuned, CHOSEN) == 0.0015
    assert fednst_confounds.rate_of(known(fednst_confounds.ALL), tuned, CHOSEN) == 0.0015
    assert tried == [(fednst_confounds.ALL, lr) for lr in (0.025, 0.1, 0.0015)]
