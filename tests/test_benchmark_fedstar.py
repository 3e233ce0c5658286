"""The studies of FedSTAR: tables of runs, and curves."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import study
from benchmarks.studies import fedstar_long, fedstar_pretraining, fedstar_supervised, fedstar_tables
from fedray import experiment


def run(right: int, seed: int = 0) -> dict[str, object]:
    """A run of four rounds that gets `right` of 20 clips right, half of them from each speaker."""
    best = {"round": 4, "test/accuracy": 5.0 * right}
    counts = study.packed({"s1": (10, right // 2), "s2": (10, right - right // 2)})
    scores = {"dev": [[2, 40.0], [4, 50.0]], "kept": [None, 60.0], "right": [None, 70.0]}
    return {"seed": seed, "best": best, "right of": counts, **scores}


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_gains_are_over_equal_steps_and_over_the_supervised_federation() -> None:
    found = {"supervised": [run(8)], "FedSTAR, beta = 0": [run(10)], "FedSTAR, beta = 0.5": [run(12), run(14, seed=1)]}
    supervised, without, star = cells(fedstar_long.table(found))
    assert supervised[:3] == ["supervised", "40.0", "-10.0 points [-10.0, -10.0]"]
    assert without[2:4] == ["", "+10.0 points [+10.0, +10.0]"]
    assert star[1:4] == ["65.0 ± 7.1", "+10.0 points [+10.0, +10.0]", "+20.0 points [+20.0, +20.0]"], "the seed of both"
    assert star[4:] == ["60", "70", "4 of 4 (still improving), 4 of 4 (still improving)", "0, 1"]


@pytest.mark.parametrize("part", fedstar_tables.PARTS)
def test_each_setting_of_a_table_differs_in_one_thing(part: str) -> None:
    wanted = {
        "classes": ({("clients", "labels"), ("clients", "labels_spread")}, 100),
        "unlabelled": ({("labelled", "unlabelled")}, 100),
        "participation": (set(), 100),
        "epochs": (set(), 50),
    }
    for config, overrides in fedstar_tables.ARMS.values():
        usual, _ = experiment.load(f"configs/fedstar/{config}.yaml", [*fedstar_tables.COMMON, *overrides])
        fractions, epochs = set(), set()
        for title in fedstar_tables.PARTS[part]:
            given = [*overrides, *fedstar_tables.settings(part, title, 100)]
            loaded, source = experiment.load(f"configs/fedstar/{config}.yaml", given)
            experiment.check_setup(loaded, source)
            changed, rounds = wanted[part]
            for section in ("clients", "labelled"):
                ours, theirs = getattr(loaded.data, section), getattr(usual.data, section)
                names = {name for name in vars(ours) if getattr(ours, name) != getattr(theirs, name)}
                assert {(section, name) for name in names} <= changed
            assert loaded.rounds == rounds and loaded.data.labelled.share == 0.03 and loaded.data.clients.count == 15
            fractions.add(loaded.cohort.fraction)
            epochs.add(loaded.algorithm.settings.client.epochs)
        assert fractions == ({0.2, 0.4, 0.8} if part == "participation" else {0.8})
        assert epochs == ({1, 2, 4} if part == "epochs" else {1})


def test_a_start_is_compared_with_the_other_at_the_same_beta(tmp_path: Path) -> None:
    found = {arm: [run(right)] for arm, right in zip(fedstar_pretraining.ARMS, (8, 10, 12, 16), strict=True)}
    rows = {row[0]: row[1:] for row in cells(fedstar_pretraining.table(found))}
    assert rows["random, beta = 0"][2:4] == ["", ""]
    assert rows["pre-trained, beta = 0"][2:4] == ["+10.0 points [+10.0, +10.0]", ""]
    assert rows["random, beta = 0.5"][2:4] == ["", "+20.0 points [+20.0, +20.0]"]
    assert rows["pre-trained, beta = 0.5"][2:4] == ["+20.0 points [+20.0, +20.0]", "+30.0 points [+30.0, +30.0]"]
    fedstar_pretraining.draw({"events": [2.0, 1.0]}, {"events, L = 3 %": found}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_federations_are_compared_with_central_training() -> None:
    central, five = cells(fedstar_supervised.table({"central": [run(18)], "N = 5": [run(16)]}))
    assert central[2] == "" and five[:3] == ["N = 5", "80.0", "-10.0 points [-10.0, -10.0]"]


@pytest.mark.parametrize("corpus", fedstar_pretraining.CORPORA)
def test_pre_training_hears_none_of_the_clips_that_are_trained_on(corpus: str) -> None:
    """Pre-training has another corpus seed, from which speakers and sources are drawn, whatever the kind."""
    chosen = fedstar_pretraining.CORPORA[corpus]
    folder = study.ROOT / "configs" / "fedstar"
    trained, _ = experiment.load_as(experiment.pretraining.PretrainingConfig, folder / f"{chosen.pretraining}.yaml")
    run, _ = experiment.load(folder / f"{chosen.config}.yaml")
    assert trained.data.seed not in (run.data.seed, 0, 1, 2)
    assert trained.features == run.features and trained.model == run.model
    none = ("server_speakers", "dev_speakers", "test_speakers", "test_server_speakers")
    assert not any(trained.data.options[name] for name in none)
