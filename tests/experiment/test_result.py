"""The result of a run as notebooks and scripts see it."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedray
from tests.report.folders import config, sentences, write


def test_the_files_are_tables_and_the_scores_are_shown(tmp_path: Path) -> None:
    folder = write(tmp_path / "<run>", config(), *(sentences(seed, ("ann", "bob")) for seed in (1, 2)))
    result = fedray.Result.read(folder)
    rounds, predictions = result.rounds(), result.predictions()
    assert rounds.index.name == "round" and "dev/wer" in rounds
    assert predictions[["errors", "words"]].dtypes.tolist() == [int, int]
    assert set(predictions.model) == {"seed", "best"} and predictions.speaker.tolist()[0] == "ann"
    assert "best round" in result._repr_html_() and "&lt;run&gt;" in result._repr_html_()


def test_a_run_that_has_not_ended_says_so(tmp_path: Path) -> None:
    assert "stopped after round 3" in fedray.Result(tmp_path, {"stopped": 3})._repr_html_()
    assert "stopped after round 0" in fedray.Result(tmp_path, {"stopped": None})._repr_html_()
    assert len(fedray.Result(tmp_path, {"stopped": None}).rounds()) == 0
    assert "goes on without this process" in fedray.Result(tmp_path, {})._repr_html_()
    with pytest.raises(ValueError, match="holds no finished run: it has no results.json"):
        fedray.Result.read(tmp_path)
