"""The result of a run as notebooks and scripts see it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import fedray
from fedray import report
from fedray.cli.outcome import show_results
from fedray.experiment import launch
from fedray.runs.folder import RunFolder
from tests.report.folders import config, sentences, write


def test_the_files_are_tables_and_the_scores_are_shown(tmp_path: Path) -> None:
    folder = write(tmp_path / "<run>", config(), *(sentences(seed, ("ann", "bob")) for seed in (1, 2)))
    result = fedray.Result.read(folder)
    rounds, predictions = result.rounds(), result.predictions()
    assert rounds.index.name == "round" and "dev/wer" in rounds
    assert predictions[["errors", "words"]].dtypes.tolist() == [int, int]
    assert set(predictions.model) == {"seed", "best"} and predictions.speaker.tolist()[0] == "ann"
    assert "best round" in result._repr_html_() and "&lt;run&gt;" in result._repr_html_()


@pytest.mark.parametrize(
    ("algorithm", "model", "name"),
    [
        ({}, {}, "seed model"),
        ({"pretrain": {"steps": 5}}, {}, "seed model"),
        ({"pretrain": {"steps": 0}}, {}, "initial model"),
    ]
    + [({"pretrain": {"steps": 0}}, {key: "start"}, "seed model") for key in ("init", "folder")],
)
def test_the_first_model_is_a_seed_model_if_it_was_trained_or_loaded(
    tmp_path: Path, algorithm: dict[str, Any], model: dict[str, Any], name: str
) -> None:
    values = config()
    folder = write(tmp_path / "run", values | {"algorithm": values["algorithm"] | algorithm, "model": model})
    assert f"<th>{name}</th>" in fedray.Result.read(folder)._repr_html_()
    console = Console(file=io.StringIO(), width=120)
    show_results(RunFolder(folder), RunFolder(folder).read_json("results.json"), console)
    assert name in console.file.getvalue()
    found = report.read(folder)
    random = " (random weights)" if name == "initial model" else ""
    assert f"Scores are {name}{random} → best round" in found.caption
    assert ("seed model" in found.html()) == (name == "seed model")


def test_the_scores_are_shown_without_a_whole_configuration(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", config())
    for damage in ("name: [", "- 1", ""):
        (folder / "config.yaml").write_text(damage)
        assert "<th>seed model</th>" in fedray.Result.read(folder)._repr_html_()


def test_scores_of_personal_models_are_a_table(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", config())
    result = fedray.Result.read(folder)
    with pytest.raises(ValueError, match="set evaluation.personal_final=true"):
        result.personal()
    (folder / "personal.tsv").write_text('client\tsplit\twer\n07\tdev\t12.5\nNA\t"own\t\n')
    table = result.personal()
    assert table.client.tolist() == ["07", "NA"] and table.split.tolist() == ["dev", '"own']
    assert table.wer.tolist()[0] == 12.5 and table.wer.isna().tolist() == [False, True]


def test_a_run_without_dev_and_test_says_what_it_cannot_show(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", config())
    results = json.loads((folder / "results.json").read_text())
    shown = {}
    for splits in (("test",), ()):
        kept = {
            model: {
                name: value
                for name, value in results[model].items()
                if name == "round" or (splits and name.startswith(splits))
            }
            for model in ("seed", "best")
        }
        (folder / "results.json").write_text(json.dumps(results | kept))
        console = Console(file=io.StringIO(), width=300)
        show_results(RunFolder(folder), RunFolder(folder).read_json("results.json"), console)
        shown[splits] = console.file.getvalue(), fedray.Result.read(folder)._repr_html_()
    assert all("last round (3)" in text and "No scores" not in text for text in shown["test",])
    assert all("No scores: the data have neither dev nor test" in text for text in shown[()])
    assert not any("last round" in text or "<table" in text for text in shown[()]) and "toy: 3 rounds" in shown[()][0]


def test_a_run_that_has_not_ended_says_so(tmp_path: Path) -> None:
    assert "stopped after round 3" in fedray.Result(tmp_path, {"stopped": 3})._repr_html_()
    assert "stopped after round 0" in fedray.Result(tmp_path, {"stopped": None})._repr_html_()
    assert len(fedray.Result(tmp_path, {"stopped": None}).rounds()) == 0
    assert "continues without this process" in fedray.Result(tmp_path, {})._repr_html_()
    with pytest.raises(ValueError, match="holds no finished run: it has no results.json"):
        fedray.Result.read(tmp_path)


@pytest.mark.parametrize(
    ("rounds", "patience", "best", "ended"),
    [(3, None, 3, True), (9, None, 1, False), (9, 2, 1, True), (9, 3, 1, False), (9, 2, 2, False)],
)
def test_a_run_that_rounds_or_patience_have_ended_is_shown(
    rounds: int, patience: int | None, best: int, ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three rounds; a run that has not ended would connect to Ray to go on."""
    folder = write(tmp_path / "run", config())
    (folder / "checkpoints" / "round_000003").mkdir(parents=True)
    results = json.loads((folder / "results.json").read_text())
    results["best"]["round"] = best
    (folder / "results.json").write_text(json.dumps(results))
    asked = SimpleNamespace(rounds=rounds, evaluation=SimpleNamespace(patience=patience))
    monkeypatch.setattr(launch, "reopen", lambda folder, overrides: (asked, None))

    def connect(**_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(launch.session, "connect", connect)
    if not ended:
        with pytest.raises(InterruptedError):
            fedray.resume(folder)
    else:
        assert fedray.resume(folder).results == results
