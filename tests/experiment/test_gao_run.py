"""End-to-end runs of Gao et al.: a CRDNN, clients weighted by their WER, and fine-tuning on the server each round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray.runs.folder import RunFolder
from tests import speech
from tests.algorithms.test_gao import CRDNN, GAO
from tests.engine.runs import same_on_more_actors_and_resumed

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.nightly]
ROUNDS = 3


def settings(corpus: Path) -> dict[str, Any]:
    strategy = {"kind": "by_wer", "temperature": 0.1}
    return speech.settings(corpus, algorithm=GAO, model=CRDNN, strategy=strategy, rounds=ROUNDS)


@pytest.fixture(scope="module")
def straight(corpus: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> fedray.Result:
    return fedray.run(settings(corpus), out=tmp_path_factory.mktemp("straight") / "run")


def test_each_round_says_the_wer_on_the_central_set_and_who_counts(straight: fedray.Result) -> None:
    played = RunFolder(straight.folder).rows("metrics.jsonl")
    assert len(played) == ROUNDS
    assert all(row["train/central_wer"] >= 0 and 1 <= row["clients/effective"] <= 3 for row in played)
    assert (straight.folder / "model" / "example.py").exists()


def test_any_number_of_actors_and_a_resume_give_the_same_bits(
    straight: fedray.Result, corpus: Path, tmp_path: Path
) -> None:
    """A checkpoint includes the server's fine-tuning of its round, so a run killed after round 2 can resume."""
    same_on_more_actors_and_resumed(settings(corpus), straight.folder, tmp_path / "two")
