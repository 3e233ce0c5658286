"""The study of Gao et al.'s table 1: every arm is a configuration that loads, and tables show the arms' scores."""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path

import pytest

from benchmarks import study
from benchmarks.studies import gao_plateau, gao_scratch
from benchmarks.studies.gao_table1 import ALONE, AS_SILOS, CORPORA, FALLING, Arm, arms, compared, page
from fedray import experiment


@pytest.mark.parametrize("corpus", [pytest.param(c, marks=[pytest.mark.long] * (c != "embedded")) for c in CORPORA])
def test_every_arm_is_a_valid_configuration(corpus: str) -> None:
    chosen = CORPORA[corpus]
    for name, (config, overrides, as_silos) in chosen.arms().items():
        assert as_silos == (AS_SILOS in name)
        loaded, source = experiment.load(chosen.config(config), [*chosen.overrides, *overrides])
        experiment.check_setup(loaded, source)
        settings = loaded.algorithm.settings
        assert loaded.task.settings.decode.lm_weight == 0 or loaded.task.settings.decode.search == "greedy", name
        if "central" not in config and "warm_up" not in config:
            assert settings.server_scheduled == (FALLING in overrides)
            assert settings.client.epochs == 5 and settings.server_finetune == (ALONE not in overrides), name
            size = 10 if config == "silos" else 100 if corpus.startswith("common_voice") else 20
            assert loaded.cohort.size == (None if chosen.speech and corpus != "speechocean_all" else size)
        if config.startswith("scratch"):
            assert settings.pretrain.steps == 0


@pytest.mark.parametrize("arm", gao_plateau.ARMS)
def test_every_arm_starts_from_the_plateau(arm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = []
    monkeypatch.setattr(gao_plateau, "played", lambda *given: seen.append(given))
    gao_plateau.play(arm, 0.1, 0, 40, tmp_path)
    ((corpus, (config, overrides, _), seed, extra, _),) = seen
    central = arm == gao_plateau.CONTROL
    given = [*corpus.of_seed(seed), *overrides, *extra, *(corpus.of_adamw if central else ())]
    loaded, source = experiment.load(corpus.config(config), given)
    experiment.check_setup(loaded, source)
    of_rate = loaded.algorithm.settings.adamw if central else loaded.algorithm.settings.client
    assert of_rate.lr == 0.1
    assert loaded.algorithm.settings.pretrain.steps == gao_plateau.STEPS and corpus.length(gao_plateau.ARMS[arm]) == 40
    assert {one for pair in gao_plateau.compared() for one in pair} == set(gao_plateau.ARMS)


@pytest.mark.parametrize("arm", gao_scratch.ARMS)
def test_every_arm_starts_from_nothing(arm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = []
    monkeypatch.setattr(gao_scratch, "played", lambda *given: seen.append(given) or {"dev": 50.0})
    clients = {"CRDNN, FedAvg": {"0.1": 50, "1": 49}, "Conformer, FedAvg": {"0.03": 50, "0.3": 51}}
    gao_scratch.play(arm, 0.004, 0, 200, tmp_path, clients)
    ((corpus, (config, overrides, _), seed, extra, _),) = seen
    kind, rate = arm.split(",")[0].lower(), gao_scratch.ARMS[arm].rate
    central = rate == gao_scratch.CENTRAL
    given = [*corpus.of_seed(seed), *(corpus.of_adamw if central else ()), *overrides, *extra]
    loaded, source = experiment.load(corpus.config(config), given)
    experiment.check_setup(loaded, source)
    settings = loaded.algorithm.settings
    assert loaded.model.kind == kind and settings.pretrain.steps == 0 and loaded.evaluation.every == 10
    if central:
        assert settings.adamw.lr == 0.004
    elif rate == gao_scratch.SERVER:
        assert settings.client.lr == {"crdnn": 1.0, "conformer": 0.03}[kind] and loaded.server_optimizer.lr == 0.004
        assert (settings.client.epochs, settings.server_finetune) == ((10, False) if "LAMB" in arm else (5, True))
    else:
        assert settings.client.lr == 0.004 and settings.server_scheduled


def test_rates_of_the_server_follow_those_of_the_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trials = []
    monkeypatch.setattr(gao_scratch, "play", lambda arm, lr, *_: trials.append((arm, lr)) or {"dev": abs(lr - 0.1)})
    tuned = gao_scratch.settled({}, ["CRDNN, FedAdam"], 200, tmp_path)
    assert trials[:3] == [("CRDNN, FedAvg", 0.1), ("CRDNN, FedAvg", 0.3), ("CRDNN, FedAvg", 0.03)]
    assert [*tuned] == ["CRDNN, FedAvg", "CRDNN, FedAdam"] and trials[3][0] == "CRDNN, FedAdam"


@pytest.mark.parametrize(("corpus", "a_client", "utterances"), [("embedded", 11.6, 4640), ("digits", 12, 1440)])
def test_central_training_sees_as_much_speech_as_twenty_rounds(corpus: str, a_client: float, utterances: int) -> None:
    """Clients hold half of the utterances; a client has `a_client` on average, and trains five epochs per round."""
    seen = 20 * 20 * 5 * a_client
    chosen = CORPORA[corpus]
    for name, of_all in (("central_sgd", 1.0), ("central_second_half_sgd", 0.5)):
        loaded, _ = experiment.load(chosen.config(name))
        epochs = chosen.length(Arm(name, [])) * loaded.algorithm.settings.client.epochs
        assert epochs * of_all * utterances == pytest.approx(seen, rel=0.02)
    for name, of_all in (("central", 1.0), ("central_second_half", 0.5), ("warm_up_continued", 0.5)):
        loaded, _ = experiment.load(chosen.config(name))
        parts = math.ceil(of_all * utterances / loaded.algorithm.settings.utterances)  # equal parts of an epoch
        assert chosen.length(Arm(name, [])) * of_all * utterances / parts == pytest.approx(seen, rel=0.02)
    of_silos = 20 * 5 * 0.5 * utterances
    assert chosen.silos * seen == pytest.approx(of_silos, rel=0.02)


def test_the_twin_with_a_decoder_has_the_settings_of_its_configuration() -> None:
    chosen = CORPORA["embedded_attention"]
    (overridden, _), (written, _) = (
        experiment.load(study.ROOT / "configs/gao" / name, overrides)
        for name, overrides in (
            ("embedded.yaml", chosen.overrides),
            ("ablations/attention.yaml", CORPORA["embedded"].overrides),
        )
    )
    assert (overridden.task, overridden.model) == (written.task, written.model)


def test_rounds_of_central_training_follow_those_of_the_federation() -> None:
    long = dataclasses.replace(CORPORA["embedded"], rounds=80)
    federated, central, *sgd = (Arm(name, []) for name in ("one", "central", "central_sgd", "central_second_half_sgd"))
    assert [long.length(arm) for arm in (federated, central, *sgd)] == [80, 80, 20, 40]
    assert long.length(Arm("central", [], as_silos=True)) == 800
    voice = CORPORA["common_voice_fr"]
    assert [voice.length(arm) for arm in (central, *sgd)] == [20, 10, 20], "as configured: epochs of equal steps"
    assert dataclasses.replace(long, rounds=1).length(sgd[0]) == 1


def test_the_tables() -> None:
    def result(errors: int) -> dict[str, object]:
        speakers = [f"s{speaker}" for speaker in range(5)]
        counts = {
            model: study.packed(dict.fromkeys(speakers, (10, wrong)))
            for model, wrong in (("before", 4), ("best", errors))
        }
        return counts | {"seed": 0, "round": 7, "effective": 7.5, "cohort": 10, "seconds": 2.0}

    pairs = compared()
    assert {arm for pair in pairs for arm in pair} <= set(arms())
    worse, better = pairs[0]
    text = page({worse: [result(3)] * 2, better: [result(2)] * 2}, {worse: 10, better: 7}, pairs)
    assert f"| {better} | 20.0 [20.0, 20.0] | 40.0 [40.0, 40.0] | -20.0 points [-20.0, -20.0] | 7.5 of 10 |" in text
    assert f"| {worse} | {better} | -10.0 points [-10.0, -10.0] |" in text
    elsewhere = result(2) | {"seed": 1, "before": result(2)["best"]}
    found = {worse: [result(3), result(3) | {"seed": 1}], better: [result(2), elsewhere]}
    text = page(found, {worse: 10, better: 7}, pairs)
    assert text.endswith("-10.0 points [-10.0, -10.0] | 0 |"), "seed 1 had another start there"


def test_a_study_adds_arms_and_seeds_to_its_page(tmp_path: Path) -> None:
    page = {"silos": [{"seed": 0, "played": "before"}], "pairs": [{"seed": 0, "played": "before"}]}
    chosen = argparse.Namespace(seeds=[1, 0], arms=["silos", "one"])

    def play(arm: str, seed: int, folder: Path) -> dict[str, object]:
        return {"seed": seed, "played": folder.name}

    (tmp_path / "silos-0").mkdir()  # a folder takes precedence over the page
    found = study.gathered(page, ["silos", "pairs", "one"], chosen, lambda arm, seed: tmp_path / f"{arm}-{seed}", play)
    assert {arm: [(run["seed"], run["played"]) for run in runs] for arm, runs in found.items()} == {
        "silos": [(0, "silos-0"), (1, "silos-1")],
        "pairs": [(0, "before")],
        "one": [(0, "one-0"), (1, "one-1")],
    }
    assert study.common(found["silos"], found["pairs"]) == [found["silos"][:1], found["pairs"]]
    assert study.seeds(found) == [0, 1]
    chosen = argparse.Namespace(seeds=[2], arms=["one", "pair"])  # a name matches only itself
    longer = ["one", "one, twice", "pairs"]
    assert [*study.gathered({}, longer, chosen, lambda arm, seed: tmp_path / arm, play)] == ["one", "pairs"]
    here = study.machine()["cpu"]
    assert [run.get("cpu") for run in found["pairs"] + found["one"]] == [None, here, here]


def test_a_page_names_the_processors_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "RESULTS", tmp_path)
    here = study.machine()["cpu"]
    for others, words in ((["Z80", "6502", here], "some runs on 6502 and Z80, Python"), ([here], "cores, Python")):
        study.write("x", "Text", {"found": {"arm": [{"seed": 0, "cpu": cpu} for cpu in others]}}, "make demo", [0])
        assert words in (tmp_path / "x.md").read_text(encoding="utf-8")
