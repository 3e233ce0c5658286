"""Corpora of transcribed and translated speech as users meet them: in `fedray data`, and from files to scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedray.core.parallel import serial
from fedray.core.settings import Choice
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import federate
from fedray.data.text.scoring import SCORING
from fedray.models.conformer import ConformerSettings
from fedray.training.decoding.search import DecodeSettings
from fedray.training.recognition import Recognition, RecognitionSettings
from tests import speech_trees, trees
from tests.data.corpora.official.test_front_door import shown
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("without_ray")

# Corpus -> options, division of the clients, the clients.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "covost2": ({"accents": ["england", "austral"], "held_out": 1}, {"by": "label"}, ["austral", "england"]),
    "mustc": ({}, {}, ["spk.1", "spk.767"]),
    "gigaspeech": ({}, {"by": "label"}, ["Howto and Style", "Science and Technology"]),
}


@pytest.mark.parametrize("corpus", CASES)
def test_it_is_shown(corpus: str, tmp_path: Path) -> None:
    options, clients, names = CASES[corpus]
    root = getattr(speech_trees, corpus)(tmp_path / "corpus")
    # `shown` configures a classifier. MuST-C has no labels, which is a problem, but its clients are shown first.
    text, problems = shown(tmp_path, corpus=corpus, root=str(root), options=options, clients=clients)
    assert f" {len(names)}, divided by " in text
    stops = [problem.text for problem in problems if problem.stops]
    assert not stops or corpus == "mustc", stops


@pytest.mark.parametrize("corpus", CASES)
@pytest.mark.filterwarnings("ignore::fedray.data.corpora.official.layout.LeftOut")
def test_a_recogniser_can_be_trained_on_it(corpus: str, tmp_path: Path) -> None:
    options, clients, names = CASES[corpus]
    splits = trees.read(corpus, getattr(speech_trees, corpus)(tmp_path / "corpus"), **options)
    settings = DataSettings(clients=type(DataSettings().clients)(**clients))
    features = LogMelSettings(bins=8)
    data, broken = federate(splits, settings, features, tmp_path / "cache", serial)
    assert not broken and list(data.client_ids()) == names
    model = Choice("conformer", ConformerSettings())
    decode = DecodeSettings(search="greedy")
    task = Recognition(RecognitionSettings(scoring="gigaspeech", decode=decode), model, features, data)
    assert task.signatures == {"wer": "texts as the corpus has them, task.scoring=gigaspeech"}
    data.rules = ["fedray's rules 2 for en"]
    named = Recognition(RecognitionSettings(decode=decode), model, features, data).signatures
    assert named == {"wer": "fedray's rules 2 for en, task.scoring=plain"}
    client = data.load(names[0])
    assert all(task.targets(client)) and all(client.translations) == (corpus != "gigaspeech")
    result = task.evaluate(task.initial(), client, task.assets(), "cpu", final=True)
    references = [SCORING["gigaspeech"](text or "") for text in client.texts]
    assert [row["reference"] for row in result.predictions] == references
    assert [row["words"] for row in result.predictions] == [len(text.split()) for text in references]


def test_an_unknown_rule_for_scores() -> None:
    with pytest.raises(
        ValueError, match="scoring must be one of plain, gigaspeech, characters, whisper_english, not 'sclite'"
    ):
        RecognitionSettings(scoring="sclite")
