"""What a sweep may vary, and which configuration each trial gets."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from ray import tune

from fedray import experiment
from fedray.config.source import ConfigError, from_mapping
from fedray.core.parallel import serial
from fedray.engine.driver import session
from fedray.runs import places
from fedray.sweep import Sweep, main, space, study
from fedray.sweep.command import _of_configuration, _parse
from fedray.sweep.prepare import transcripts
from fedray.sweep.study import Study
from tests import speech

ROOT = Path(__file__).parents[2]
SWEEPS = sorted((ROOT / "sweeps").glob("*.py"))


def sweep(**changes: Any) -> Sweep:
    asked = Sweep("speed", "How fast?", "base.yaml", {"algorithm.client.lr": tune.grid_search([0.1, 0.2])})
    return replace(asked, **changes)


def trials_of(asked: Sweep, overrides: list[str] | None = None, smoke: bool = False, folder: Path = ROOT) -> Study:
    settings = [*asked.settings, *(asked.small if smoke else ())]
    bases = study.read_bases(asked, ROOT / "sweeps" / "file.py")
    return Study("/nowhere", asked.base, bases, asked.names, settings, overrides or [], str(folder), asked.metric, 2)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "base.yaml"
    path.write_text("name: a\nrounds: 7\nalgorithm: {kind: fedavg, client: {lr: 0.9, batch: 3}}\ncohort: {size: 2}\n")
    return path


def test_overrides_beat_settings_which_beat_the_base_and_swept_values_beat_all(base: Path) -> None:
    asked = sweep(settings=["rounds=5", "algorithm.client.batch=4"])
    config, _ = trials_of(asked, ["rounds=6"]).config({"algorithm.client.lr": 0.2})
    assert (
        config.rounds,
        config.algorithm.settings.client.batch,
        config.algorithm.settings.client.lr,
        config.name,
    ) == (6, 4, 0.2, "a")


def test_a_configurations_own_keys_apply_to_all_trials_except_swept_ones(base: Path) -> None:
    text = "extends: base.yaml\nname: b\nrounds: 9\nalgorithm: {client: {lr: 0.5, batch: 4}}\ncohort: {size: 3}\n"
    (base.parent / "corpus.yaml").write_text(text)
    options = _parse(sweep(), ["--with", "corpus.yaml", "rounds=8"])
    given = [*_of_configuration(sweep(), options), *options.overrides]
    assert given == ["rounds=9", "algorithm.client.batch=4", "cohort.size=3", "rounds=8"]
    config, _ = trials_of(sweep(), given).config({"algorithm.client.lr": 0.2})
    client = config.algorithm.settings.client
    assert (config.name, config.rounds, client.batch, client.lr, config.cohort.size) == ("a", 8, 4, 0.2, 3)


def test_interpolations_of_a_file_stay_interpolations(base: Path) -> None:
    """Those of --with, and those that a sweep over kinds keeps; a text that only looks like one stays a text."""
    (base.parent / "corpus.yaml").write_text("seed: ${rounds}\ndata: {root: '/c/\\${a}', seed: '${seed}'}\n")
    given = _of_configuration(sweep(), _parse(sweep(), ["--with", "corpus.yaml"]))
    wanted = {"rounds": 7, "seed": 7, "data": {"root": "/c/${a}", "seed": 7}}
    assert from_mapping({"rounds": 7}, given).values == wanted
    base.write_text(base.read_text().replace("batch: 3", "batch: '${cohort.size}'"))
    asked = sweep(space={"algorithm.kind": tune.grid_search(["fedprox"])})
    config, _ = trials_of(asked).config({"algorithm.kind": "fedprox"})
    assert config.algorithm.settings.client.batch == 2


def test_names_and_keys_in_braces_stand_for_the_trials_values(base: Path) -> None:
    (base.parent / "other.yaml").write_text("extends: base.yaml\nname: b\n")
    asked = sweep(
        base="{method}.yaml",
        space={"method": tune.grid_search(["A", "B"]), "seed": tune.grid_search([3, 4])},
        names={"method": {"A": "base", "B": "other"}},
        settings=["data.seed={seed}"],
    )
    study.check_space(asked, [])
    config, _ = trials_of(asked).config({"method": "B", "seed": 4})
    assert (config.name, config.seed, config.data.seed) == ("b", 4, 4)


@pytest.mark.parametrize(
    ("changes", "overrides", "says"),
    [
        ({}, ["algorithm.client.lr=1"], "algorithm.client.lr is swept by speed"),
        ({}, ["algorithm={kind: fednst}"], "algorithm is swept by speed"),
        ({"space": {"rounds": tune.grid_search([1])}}, ["rounds=2"], "rounds is swept by speed"),
        ({"space": {"engine.actors": tune.grid_search([1])}}, [], "engine.actors cannot be swept"),
        ({"space": {"method": tune.grid_search(["A"])}}, [], "method is not a key of the configuration"),
        (
            {"space": {"m": tune.grid_search(["A"])}, "settings": ["name={m}"], "names": {"m": {}}},
            [],
            "names has no text for m=A",
        ),
    ],
)
def test_what_cannot_be_swept_is_refused(changes: dict[str, Any], overrides: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        study.check_space(sweep(**changes), overrides)


def test_an_unknown_key_or_file_is_named(base: Path) -> None:
    with pytest.raises(ValueError, match="algorithm.client.rate"):
        trials_of(sweep()).check({"algorithm.client.rate": tune.grid_search([1.0])})
    with pytest.raises(ValueError, match="there is no file absent.yaml"):
        study.read_bases(sweep(base="absent.yaml"), Path("file.py"))


def test_what_is_wrong_in_a_base_is_named_with_its_file(base: Path) -> None:
    base.write_text(base.read_text() + "seeed: 3\n")
    with pytest.raises(ConfigError, match=r"^base\.yaml: unknown key seeed"):
        trials_of(sweep()).config({"algorithm.client.lr": 0.1})
    with pytest.raises(ConfigError, match=r"^command line: unknown key roundz"):
        trials_of(sweep(base="fedavg/keywords"), ["roundz=3"]).config({"algorithm.client.lr": 0.1})


def test_a_sweep_that_was_copied_alone_finds_its_base_where_fedray_is_installed_from(base: Path) -> None:
    """`ray submit` copies a script to the home folder of the head node, and runs it there."""
    asked = runpy.run_path(str(ROOT / "sweeps" / "fednst_lambda.py"))["SWEEP"]
    (found,) = study.read_bases(asked, base.parent / "fednst_lambda.py").values()
    assert found["name"] == "fednst-embedded-4k"
    mine = base.parent / asked.base
    mine.parent.mkdir(parents=True)
    mine.write_text("name: mine\n")
    (found,) = study.read_bases(asked, base.parent / "fednst_lambda.py").values()
    assert found["name"] == "mine"


def test_where_runs_go_that_nobody_gives_a_place(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDRAY_RUNS", raising=False)
    assert places.usual_place("a") == base.parent / "runs" / "a"
    monkeypatch.setenv("FEDRAY_RUNS", str(base.parent / "shared"))
    assert places.usual_place("a") == base.parent / "shared" / "a"
    monkeypatch.setenv("FEDRAY_RUNS", "s3://bucket/runs?region=eu")
    assert places.usual_place("a") == "s3://bucket/runs/a?region=eu"


def test_a_grid_is_drawn_from_where_the_search_draws_and_a_range_has_no_grid() -> None:
    wide = {"a.b": tune.grid_search([1, 2]), "c.d": tune.uniform(0, 1)}
    drawn = space.for_search(wide, "random")
    assert space.options(drawn["a.b"]) == [1, 2] and drawn["c.d"] is wide["c.d"]
    assert space.grid_values(drawn["a.b"]) is None, "of a grid each draw would play every value"
    with pytest.raises(ValueError, match="--search grid: c.d has a range of values"):
        space.for_search(wide, "grid")


def test_smoke_plays_the_ends_of_one_key() -> None:
    small = space.smoke({"a.b": tune.grid_search([5]), "c.d": tune.grid_search([1, 2, 3]), "e.f": tune.choice([7, 8])})
    assert {key: space.options(domain) for key, domain in small.items()} == {"a.b": [5], "c.d": [1, 3], "e.f": [7]}


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_file_in_sweeps_asks_something_that_can_be_swept(path: Path, tmp_path: Path) -> None:
    pretrained = tmp_path / "runs" / "pretrained" / "weights.pt"  # `fedray pretrain` writes it first
    pretrained.parent.mkdir(parents=True)
    torch.save({"weight": torch.zeros(1)}, pretrained)
    asked = runpy.run_path(str(path))["SWEEP"]
    asked = study.with_files(asked, {"pretrained": str(pretrained), "text": str(path)})
    assert asked.name == path.stem and asked.question.endswith("?")
    study.check_space(asked, [])
    trials_of(asked, folder=tmp_path).check(asked.space)
    trials_of(asked, smoke=True, folder=tmp_path).check(space.smoke(asked.space))
    assert all(figure.described()["kind"] for figure in asked.figures)


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_the_metric_of_every_file_in_sweeps_gives_its_direction(path: Path) -> None:
    asked = runpy.run_path(str(path))["SWEEP"]
    rates = asked.metric.endswith(("wer", "wer_lm", "loss"))
    assert asked.direction == replace(asked, mode=None).direction == ("min" if rates else "max")


@pytest.mark.parametrize(
    ("metric", "better"),
    [
        ("dev/wer_lm", "min"),
        ("train/label_wer", "min"),
        ("dev/cer", "min"),
        ("train/loss", "min"),
        ("personal/own_accuracy", "max"),
        ("personal/macro_f1", "max"),
        ("dev/bleu_beam", "max"),
    ],
)
def test_the_metric_says_which_trials_are_better(metric: str, better: str) -> None:
    other = {"min": "max", "max": "min"}[better]
    assert sweep(metric=metric).direction == sweep(metric=metric, mode=better).direction == better
    with pytest.raises(ValueError, match=f"mode='{other}': .* values of {metric} are better: leave out mode"):
        _ = sweep(metric=metric, mode=other).direction


def test_a_metric_that_does_not_say_needs_a_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(sweep(metric="dev/mine"), ["--help"]) == 2
    words = 'speed: metric=\'dev/mine\': fedray does not know which values are better: add mode="max" or mode="min"\n'
    assert capsys.readouterr().err == words
    with pytest.raises(SystemExit):
        main(sweep(metric="dev/mine", mode="max"), ["--help"])
    assert "Metric: dev/mine (larger is better)" in capsys.readouterr().out
    with pytest.raises(ValueError, match="mode: choose from min, max, not 'maximum'"):
        _ = sweep(mode="maximum").direction


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_the_index_has_every_sweep_with_its_question(path: Path) -> None:
    rows = (ROOT / "sweeps" / "README.md").read_text(encoding="utf-8").splitlines()
    (row,) = [row for row in rows if f"`python sweeps/{path.name}`" in row and row.startswith("| ")]
    question = re.search(r'question="([^"]*)"', path.read_text(encoding="utf-8"))
    assert question is not None and row.startswith(f"| {question[1]} |")


def test_a_text_that_all_trials_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's transcripts are written one a line, and their file replaces {text}."""
    monkeypatch.setattr(session, "parallel", serial)
    (tmp_path / "corpus").mkdir()
    speech.write_corpus(tmp_path / "corpus", speakers=9)
    given = tmp_path / "tones.yaml"
    given.write_text(yaml.safe_dump(speech.settings(tmp_path / "corpus")))
    config, source = experiment.load(given)
    written = transcripts(given, [], tmp_path / "runs" / "text.txt")
    parts, _ = experiment.read_federation(config, source)
    assert written.read_text().splitlines() == parts["server"].column("text")
    asked = study.with_files(sweep(settings=["data.text={text}", "rounds=2"]), {"text": str(written)})
    assert asked.settings == [f"data.text={written}", "rounds=2"]


@pytest.mark.parametrize("folder", ["plain", "my #1 study", "a: b", "${seed}", "Ü, {x}"])
def test_a_file_of_the_sweep_may_lie_anywhere(base: Path, folder: str) -> None:
    file = base.parent / folder / "x.txt"
    asked = study.with_files(sweep(settings=["data.text={text}"]), {"text": str(file)})
    _, source = study.experiment.load(base, asked.settings)
    assert source.values["data"]["text"] == str(file)
