"""Official corpora as users meet them: in `fedray data`, and from files to the targets of a classifier."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from fedray.cli.population import show
from fedray.core.parallel import serial
from fedray.core.settings import Choice
from fedray.data.analysis.inspection import Problem
from fedray.data.corpora.official.layout import LeftOut, collected, leave_out
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import federate
from fedray.models.crnn import CRNNSettings
from fedray.training.classification import Classification, ClassificationSettings
from tests import trees
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("without_ray")

# Corpus -> options, division of the clients, number of clients, number of classes.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int, int]] = {
    "speech_commands": ({"classes": 12}, {}, len(trees.TRAIN), 12),
    "urbansound8k": ({"test_folds": [3]}, {"by": "dirichlet", "count": 4, "min_utterances": 2}, 4, 10),
    "crema_d": ({"fold": 2, "dev_fold": 0}, {}, 91 - 18, 3),
    "iemocap": ({"test_speaker": "Ses01F"}, {}, 8, 4),
    "voxforge": ({}, {"min_utterances": 2}, 12, 6),
    "ambient": ({}, {"by": "iid", "count": 5}, 5, 10),
    "fsd50k": ({}, {"by": "iid", "count": 2}, 2, 3),
}
LEFT_OUT = {
    "crema_d": "4 of 187 recordings are left out",
    "iemocap": "10 of 35 recordings are left out",
    "voxforge": "13 of 50 recordings are left out",
}
NO_DEV = ("crema_d", "voxforge", "ambient")  # no dev set, by the options or in the official lists


def shown(folder: Path, **data: Any) -> tuple[str, list[Problem]]:
    config = {
        "data": data,
        "task": {"kind": "classification"},
        "model": {"kind": "crnn", "size": "tiny"},
        "cohort": {"size": 2},
    }
    (folder / "config.yaml").write_text(
        yaml.safe_dump(config | {"algorithm": {"kind": "fedavg", "pretrain": {"steps": 0}}}), encoding="utf-8"
    )
    console = Console(file=io.StringIO(), width=160)
    problems = show(folder / "config.yaml", [], console)
    return console.file.getvalue(), problems


@pytest.mark.parametrize("corpus", CASES)
def test_it_is_shown(corpus: str, tmp_path: Path) -> None:
    options, clients, count, _ = CASES[corpus]
    root = getattr(trees, corpus)(tmp_path / "corpus")
    text, problems = shown(tmp_path, corpus=corpus, root=str(root), options=options, clients=clients)
    assert f" {count}, divided by " in text
    assert not [problem for problem in problems if problem.stops]
    left_out = [problem for problem in problems if "left out" in problem.text]
    assert len(left_out) == (corpus in LEFT_OUT) and all(LEFT_OUT[corpus] in problem.text for problem in left_out)
    audited = [
        problem for problem in problems if problem.wrong
    ]  # the files of a tree are equal, and short for its texts
    others = [
        problem.text
        for problem in problems
        if problem not in left_out + audited and "there is no dev split" not in problem.text
    ]
    # No speaker is in two splits, except in FedSTAR's lists of ambient sounds.
    assert [said.split(":")[0] for said in others] == ["10 of the 10 speakers of test speak in clients too"] * (
        corpus == "ambient"
    )
    assert ("there is no dev split" in text) == (corpus in NO_DEV)


@pytest.mark.parametrize("corpus", CASES)
@pytest.mark.filterwarnings("ignore::fedray.data.corpora.official.layout.LeftOut")
def test_a_classifier_can_be_trained_on_it(corpus: str, tmp_path: Path) -> None:
    options, clients, count, classes = CASES[corpus]
    splits = trees.read(corpus, getattr(trees, corpus)(tmp_path / "corpus"), **options)
    settings = DataSettings(clients=type(DataSettings().clients)(**clients))
    data, broken = federate(splits, settings, LogMelSettings(), tmp_path / "cache", serial, target="label")
    assert not broken and len(data.client_ids()) == count
    task = Classification(ClassificationSettings(), Choice("crnn", CRNNSettings()), LogMelSettings(), data)
    assert task.outputs == classes
    assert all(len(task.targets(data.evaluation(split))) == len(splits[split]) for split in data.splits())


def test_a_bad_option_is_one_message(tmp_path: Path) -> None:
    trees.iemocap(tmp_path)
    words = "data.options: data.options.parts must be one of all, impro, script, not improvised"
    with pytest.raises(ValueError, match=words):
        shown(tmp_path, corpus="iemocap", root=str(tmp_path), options={"parts": "improvised"})
    with pytest.raises(ValueError, match=r"unknown key data\.options\.part"):
        shown(tmp_path, corpus="iemocap", root=str(tmp_path), options={"part": "impro"})
    _, problems = shown(tmp_path, corpus="iemocap", root=str(tmp_path / "Session1"))
    assert [problem.stops for problem in problems] == [True] and "data.root: the folder" in problems[0].text


def test_only_what_is_left_out_is_collected() -> None:
    with pytest.warns(UserWarning, match="something else") as said, collected() as told:
        warnings.warn("something else", stacklevel=1)
        leave_out(Path("corpus"), 9, {"too short": ["d", "c", "b", "a"], "never": []})
        leave_out(Path("corpus"), 9, {"never": []})
    assert told == ["corpus: 4 of 9 recordings are left out: 4 too short (a, b, c and 1 more)"]
    assert not [warning for warning in said if issubclass(warning.category, LeftOut)]
