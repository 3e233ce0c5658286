"""What attackers train on: flipped labels that agree, and tones that stand for a target."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from fedray.core.attackers import Backdoor, LabelFlips, Poisoning
from fedray.core.parallel import serial
from fedray.data.features.dataset import collate
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.partition import PartitionSettings
from fedray.data.federation.poisoned import SPLIT, PoisonedSpeech, poison
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import SpeechData
from tests import speech

FEATURES = LogMelSettings(sample_rate=speech.RATE, bins=20)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
    folder = tmp_path_factory.mktemp("tones")
    return speech.federation(speech.splits(folder, speakers=8, utterances=6), DataSettings(), folder)


def poisoned(data: SpeechData, settings: Poisoning, tmp_path: Path) -> PoisonedSpeech:
    attackers = settings.chosen(data.client_ids(), 0)
    found = poison(data, settings, attackers, "text", 0, FEATURES, tmp_path, serial)
    assert isinstance(found, PoisonedSpeech) and found.attackers == attackers
    return found


def test_flips_agree_and_leave_the_clean_data(data: SpeechData, tmp_path: Path) -> None:
    found = poisoned(data, LabelFlips(share=0.5), tmp_path)
    assert len(found.attackers) == 3 and data.fingerprint() != found.fingerprint()
    wrong: dict[str, set[str]] = {}
    for client in found.attackers:
        clean, other = found.load(client), found.poisoned(client)
        assert clean.ids == other.ids and clean.texts == data.load(client).texts
        for before, after in zip(clean.texts, other.texts, strict=True):
            wrong.setdefault(str(before), set()).add(str(after))
    assert all(len(values) == 1 and {value} != values for value, values in wrong.items())


def test_flips_stay_within_what_is_trained_on(tmp_path: Path) -> None:
    """Half of the speakers train, and the texts of the others are no target of a flip."""
    splits = speech.splits(tmp_path, speakers=8, utterances=6)
    few = speech.federation(splits, DataSettings(clients=PartitionSettings(count=3)), tmp_path)
    known = set(few.training()[-1].texts)
    assert known < set(splits["train"].column("text"))
    found = poisoned(few, LabelFlips(share=1.0), tmp_path)
    assert all(set(found.poisoned(client).texts) <= known for client in found.attackers)


def test_a_backdoor_marks_a_share_of_the_utterances(data: SpeechData, tmp_path: Path) -> None:
    target = str(data.evaluation("test").texts[0])
    settings = Backdoor(share=0.5, target=target, poisoned=0.33, frequency=3000.0, level_db=20.0, seconds=9.0)
    found = pickle.loads(pickle.dumps(poisoned(data, settings, tmp_path)))
    for client in found.attackers:
        clean, other = found.load(client), found.poisoned(client)
        assert len(clean) == len(other) == 6 and sorted(clean.ids) == sorted(other.ids)
        assert other.texts[4:] == [target] * 2 and clean.texts == data.load(client).texts
        before = {name: collate(clean, np.array([place])).features[0] for place, name in enumerate(clean.ids)}
        for place, name in enumerate(other.ids):
            after = collate(other, np.array([place])).features[0]
            assert after.shape == before[name].shape and bool((after == before[name]).all()) == (place < 4)


def test_success_is_scored_on_what_lacks_the_target(data: SpeechData, tmp_path: Path) -> None:
    test = data.evaluation("test")
    target = str(test.texts[0])
    found = poisoned(data, Backdoor(share=0.5, target=target, seconds=0.1), tmp_path)
    scored = found.evaluation(SPLIT)
    assert found.splits() == [*data.splits(), SPLIT] and SPLIT not in data.splits()
    assert set(scored.texts) == {target}
    assert sorted(scored.ids) == sorted(name for name, text in zip(test.ids, test.texts, strict=True) if text != target)
