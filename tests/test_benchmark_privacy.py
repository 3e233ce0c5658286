"""The study of privacy on the embedded corpus: every arm is a configuration that loads; tables show the scores."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from benchmarks import study
from benchmarks.studies import privacy_audit, privacy_cohorts, privacy_sizes
from benchmarks.studies.privacy_embedded import TITLES, arms, pairs, section
from fedray import experiment
from fedray.core.privacy.settings import Gaussian, NoPrivacy


@pytest.mark.parametrize("part", TITLES)
def test_every_arm_is_a_valid_configuration(part: str) -> None:
    for arm in arms(part).values():
        loaded, source = experiment.load(arm.config, list(arm.overrides))
        experiment.check_setup(loaded, source)
    assert {name for pair in pairs(part).values() for name in pair} <= set(arms(part))


@pytest.mark.parametrize("overrides", privacy_audit.ARMS.values(), ids=privacy_audit.ARMS)
def test_every_audit_is_a_valid_configuration(overrides: tuple[str, ...]) -> None:
    experiment.check_setup(*experiment.load(privacy_audit.CONFIG, list(overrides)))


@pytest.mark.parametrize("arm", privacy_cohorts.ARMS)
def test_cohorts_differ_in_their_size_and_their_noise(arm: str) -> None:
    chosen = argparse.Namespace(rounds=20, actors=1)
    task, cohort, _ = privacy_cohorts.ARMS[arm]
    loaded, source = experiment.load(*privacy_cohorts.overrides(arm, 1, chosen))
    experiment.check_setup(loaded, source)
    assert loaded.data.options["client_speakers"] == privacy_cohorts.POPULATIONS[task] and loaded.data.seed == 0
    assert (loaded.cohort.fraction, loaded.cohort.sampling) == (None, "uniform")
    words = cohort.split()
    assert loaded.cohort.size == int(words[1] if words[0] == "from" else words[-1])
    privacy = loaded.privacy
    assert isinstance(privacy, NoPrivacy if words[0] == "no" else Gaussian)
    if isinstance(privacy, Gaussian):
        assert (privacy.noise, privacy.epsilon, privacy.clip.kind, privacy.clip.norm) == (8.0, None, "fixed", 1.0)
        assert privacy.as_if.cohort == (int(words[-1]) if words[0] == "from" else None)


@pytest.mark.nightly
def test_auroc_is_the_mean_over_seeds_and_has_an_interval() -> None:
    apart = {"inside": "3 4 5 6", "outside": "-1 0 1 2"}
    mixed = {"inside": "1 2 3 4", "outside": "1 2 3 4"}
    assert str(privacy_audit.told_apart([apart])) == "1.0 [1.0, 1.0]"
    found = privacy_audit.told_apart([apart, mixed])
    assert found.mean == 0.75 and 0.5 < found.low < 0.75 < found.high <= 1


def result(seed: int, errors: int) -> dict[str, object]:
    speakers = [f"s{speaker}" for speaker in range(5)]
    counts = {
        model: study.packed(dict.fromkeys(speakers, (10, wrong))) for model, wrong in (("before", 4), ("best", errors))
    }
    return counts | {"seed": seed, "round": 7, "noise": 0.5, "snr": None, "epsilon": 8.0}


def test_arms_are_compared_over_the_seeds_that_both_have() -> None:
    found = {"global, SGD": [result(0, 3), result(1, 1)], "dim, LAMB": [result(0, 2)]}
    text = section("layers", found)
    assert "| one bound with SGD -> by dimension with LAMB | -33.3 % [-33.3, -33.3] | 0 |" in text
    assert "| global, SGD | 20.0 [20.0, 20.0] |" in text


def test_bounds_are_compared_with_no_privacy_and_with_one_bound(tmp_path: Path) -> None:
    """By size: ten words a speaker, of which some are wrong."""

    def run(wrong: int, snr: float | None) -> dict[str, Any]:
        counts = study.packed({"ann": (10, wrong), "bob": (10, wrong)})
        return {"seed": 0, "round": 30, "snr": snr, "before": counts, "best": counts}

    found = {
        "sentences, 3.1M, no privacy": [run(9, None)],
        "sentences, 3.1M, one bound": [run(5, 0.5)],
        "sentences, 3.1M, dim": [run(7, 0.25)],
    }
    assert found.keys() <= privacy_sizes.ARMS.keys()
    none, one, dim = privacy_sizes.rows(found, "sentences", 40)
    assert none["test"].startswith("90.0") and "minus without privacy (points)" not in none
    assert one["minus without privacy (points)"].startswith("-40.0") and one["signal to noise"] == "0.5"
    assert dim["minus one bound (points)"].startswith("+20.0") and dim["best rounds"] == "30 of 40"
    assert privacy_sizes.rows(found, "keywords", 40) == []
    privacy_sizes.draw(found, tmp_path / "sizes.png")
    assert (tmp_path / "sizes.png").stat().st_size > 5_000
