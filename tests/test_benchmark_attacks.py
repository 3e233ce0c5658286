"""The tables of benchmarks.studies.attacks: the strength that an attacker chooses, and what a defence costs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.studies import attack_arms, attacks
from benchmarks.studies.attack_arms import ARMS, ATTACKS, BACKDOOR, MEAN, NOBODY, arm_of
from benchmarks.studies.attacks import chosen_by_attackers, draw, tables
from fedray import experiment


def run(right: int, success: float | None = None, dev: float = 50.0) -> dict[str, Any]:
    """A run of two speakers with ten clips each, of which one has `right` right answers and the other all."""
    scores = {"seed": 0, "dev": dev, "test": 5.0 * (right + 10), "round": 60}
    more = {} if success is None else {"success": success}
    return scores | more | {"counts": study.packed({"ann": (10, right), "bob": (10, 10)})}


def test_accuracies_and_changes() -> None:
    found = {
        MEAN: {NOBODY: [run(10)], "noise": [run(0)], BACKDOOR: [run(10, 90.0)]},
        "median": {NOBODY: [run(8)], "noise": [run(8)], BACKDOOR: [run(6, 20.0)]},
    }
    lines = tables(found, 60).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-2]] == [
        "mean",
        "100.0",
        "50.0",
        "100.0",
        "90.0",
        "50.0 (noise)",
    ]
    assert [cell.strip() for cell in lines[3].split("|")[1:-2]] == [
        "median",
        "90.0",
        "90.0",
        "80.0",
        "20.0",
        "80.0 (backdoor)",
    ]
    best = [cell.strip() for cell in lines[4].split("|")[1:-3]]
    assert best == ["best defence", "mean", "median", "mean", "median"]
    changes = [[cell.strip().partition(" ")[0] for cell in line.split("|")[1:-1]] for line in lines[-2:]]
    assert changes == [["mean", "-50.0", "+0.0", ""], ["median", "+0.0", "-10.0", "-10.0"]]


def test_the_picture_has_a_panel_for_each_share(tmp_path: Path) -> None:
    found = {share: {MEAN: {NOBODY: [run(10)], BACKDOOR: [run(10, 90.0)]}} for share in (0.1, 0.3)}
    draw(found, tmp_path / "attacks.png")
    assert (tmp_path / "attacks.png").stat().st_size > 10_000


def test_an_attacker_chooses_by_dev_of_the_first_seed() -> None:
    """Of the other seeds only the strongest runs. One strength of ALIE has not run: the attacker cannot choose yet."""
    devs = {"noise 1": 60.0, "noise 2": 40.0, "min-max 1": 30.0, "min-max 2": 50.0, "ALIE 1": 10.0, NOBODY: 80.0}
    played = []

    def play(arm: str, seed: int, place: Path) -> dict[str, Any]:
        played.append((arm, seed))
        return run(5, dev=devs[arm.rpartition(", ")[2]]) | {"seed": seed}

    arms = [arm_of(MEAN), *(arm for arm in ARMS if arm.startswith(f"{MEAN}, 30 %") and arm.rpartition(", ")[2] in devs)]
    found = attacks.played({}, ARMS, argparse.Namespace(arms=arms, seeds=[1], runs=Path("nowhere")), play)
    assert played[: len(arms)] == [(arm, 0) for arm in arms]
    assert played[len(arms) :] == [(f"{MEAN}, {one}", 1) for one in (NOBODY, "30 %, noise 2", "30 %, min-max 1")]
    assert {arm: len(runs) for arm, runs in found.items()} == {arm: 2 if (arm, 1) in played else 1 for arm in arms}


def test_a_table_has_what_has_run_completely() -> None:
    """ALIE lacks a strength, and the backdoor a seed."""
    assert len(ARMS) == len(set(map(study.folder_name, ARMS))) == 12 + 2 * 11 * sum(map(len, ATTACKS.values()))
    clean = [run(10), run(10) | {"seed": 1}]
    found = {
        arm_of(MEAN): clean,
        **{arm_of(MEAN, "noise", 0.3, number): [one | {"dev": 50.0 - number} for one in clean] for number in (0, 1)},
        arm_of(MEAN, "ALIE", 0.3, 0): clean,
        arm_of(MEAN, BACKDOOR, 0.3, 0): clean[:1],
    }
    assert found.keys() <= ARMS.keys()
    table = chosen_by_attackers(found, 0.3)
    assert {defence: list(attacks) for defence, attacks in table.items()} == {MEAN: [NOBODY, "noise"]}
    assert table[MEAN]["noise"][0]["dev"] == 49.0
    assert chosen_by_attackers(found, 0.1) == {}
    found[arm_of(MEAN, "noise", 0.1, 1)] = clean[:1]  # the strength that was chosen at 30 %
    assert chosen_by_attackers(found, 0.1) == {MEAN: {NOBODY: clean[:1], "noise": clean[:1]}}


def test_the_recogniser_has_fewer_arms() -> None:
    assert attack_arms.arms(attack_arms.KEYWORDS) == ARMS
    found = attack_arms.arms(attack_arms.RECOGNISER)
    assert len(found) == 7 + 2 * 7 * (3 * 2 + 1)
    assert {attack_arms.ALONE, "LPA"}.isdisjoint(arm.partition(", ")[0] for arm in found)
    assert any(arm.startswith("norm-bounded reserve") for arm in found) and not any("min-max" in arm for arm in found)


def test_attackers_are_counted_for_the_cohorts_of_the_configurations() -> None:
    for task in (attack_arms.KEYWORDS, attack_arms.RECOGNISER):
        config, _ = experiment.load(study.ROOT / task.config)
        assert config.cohort.size == attack_arms.COHORT
    about = attacks.about_share(0.3, [0, 2], attack_arms.KEYWORDS)
    assert about.startswith("Seeds: 0, 2. 15 of 50 clients attack.") and "in 20 of 60 rounds, and" in about
    assert attacks.about_share(0.1, [0], attack_arms.KEYWORDS).endswith("do in 0 of 60 rounds.")
