"""The study of FedNST's confounds: every arm is a valid configuration, and a page keeps what a table needs."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import study
from benchmarks.studies import fednst_confounds, fednst_long
from fedray import experiment

CHOSEN = argparse.Namespace(rounds=100, actors=1)


@pytest.mark.parametrize("arm", fednst_confounds.ARMS)
def test_every_arm_is_a_valid_configuration(arm: str) -> None:
    overrides = fednst_confounds.overrides(arm, 0, CHOSEN)
    config, source = experiment.load(study.ROOT / fednst_confounds.CONFIG, overrides)
    experiment.check_setup(config, source)
    assert config.rounds == (fednst_confounds.EPOCHS if arm == "central SGD" else 100)
    if arm.startswith("lambda 0.25"):
        assert config.algorithm.settings.schedule.decay_steps == 25


def test_arms_are_compared_with_fednst_over_common_seeds() -> None:
    def run(seed: int, errors: int) -> fednst_confounds.Run:
        model = {score: study.packed({"ann": (10, errors)}) for score in fednst_long.SCORES}
        scores = {"test/wer_lm": 10.0 * errors, "test/wer": 10.0 * errors}
        return {
            "seed": seed, "start": scores, "best": {"round": 40, **scores}, "rounds": 100, "labels": (15.0, 7.0),
            "dev": [(100, 20.0)], "counts": {"seed": model, "best": model},
        }  # fmt: skip

    found = {"FedNST": [run(0, 4), run(1, 5)], "central SGD": [run(0, 2)]}
    assert fednst_confounds.compared(found, "FedNST") == {}
    compared = fednst_confounds.compared(found, "central SGD")
    assert compared["from FedNST, LM"].startswith("-50.0 %")
    plain = {arm: [fednst_confounds.unpacked(one) for one in runs] for arm, runs in found.items()}
    row = fednst_long.row("FedNST", plain)
    assert row["test, LM"] == "45.0 ± 7.1" and row["labels' WER, first and last round"] == "15.0 → 7.0"
