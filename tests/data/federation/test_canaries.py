from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.core.privacy.audits import Canaries, Speakers
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.audited import audited, check_candidates
from fedray.data.federation.canaries import add_canaries
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import federate
from fedray.data.manifest import Manifest
from tests import speech

TEXTS = ("TURN ON THE LIGHT", "CLOSE EVERY DOOR", "PLAY SOME MUSIC")
SETTINGS = Canaries(clients=8, utterances=3, repeat=2)


def clients(texts: tuple[str | None, ...] = TEXTS, speaker: str = "anna") -> Manifest:
    rows = [
        {
            "utterance": f"{speaker}-{i}",
            "path": "/a.wav",
            "seconds": 1.0,
            "speaker": speaker,
            "text": text,
            "label": f"l{i}",
        }
        for i, text in enumerate(texts)
    ]
    return Manifest.from_rows(rows, source="test")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed (pip install fedray[synth])")
    return tmp_path_factory.mktemp("canaries")


def make(
    settings: Canaries, seed: int, cache: Path, texts: tuple[str | None, ...] = TEXTS, speaker: str = "anna"
) -> Manifest:
    """Return the rows of the canaries alone."""
    before = clients(texts, speaker)
    return add_canaries(before, settings, seed, cache, serial).take(
        np.arange(len(before), len(before) + rows_of(settings))
    )


def rows_of(settings: Canaries) -> int:
    return settings.clients * settings.utterances * settings.repeat


@pytest.fixture(scope="module")
def made(cache: Path) -> Manifest:
    return make(SETTINGS, 1, cache)


def test_a_canary_is_a_client_that_repeats_its_utterances(made: Manifest) -> None:
    members = partition(made, PartitionSettings(), seed=0)
    assert sorted(members) == SETTINGS.names == [f"canary-{i:04d}" for i in range(8)]
    for name, mine in members.items():
        texts = made.take(mine).column("text")
        assert len(texts) == 6 and texts[:3] == texts[3:], "the different utterances come first"
        assert made.take(mine).column("utterance")[:2] == [f"{name}-000-0", f"{name}-001-0"]
    made.check()


def test_a_federation_trains_those_inside_and_judges_all(cache: Path, tmp_path: Path) -> None:
    splits = speech.splits(tmp_path, speakers=10, utterances=3)
    splits |= {"train": add_canaries(splits["train"], SETTINGS, 1, cache, serial)}
    whole, broken = federate(splits, DataSettings(), LogMelSettings(bins=20), tmp_path / "features", serial)
    assert not broken
    data = audited(whole, SETTINGS, 1)
    inside = [name for name, taken in data.candidates.items() if taken]
    assert sorted(data.candidates) == SETTINGS.names and 2 <= len(inside) <= 6
    assert set(whole.client_ids()) - set(data.client_ids()) == set(SETTINGS.names) - set(inside)
    for name in SETTINGS.names:
        assert data.judged(name).texts == whole.load(name).texts[:3]
    known = [client for client in data.client_ids() if client not in SETTINGS.names]
    assert [data.load(client).ids for client in known] == [whole.load(client).ids for client in known]
    assert data.fingerprint() != whole.fingerprint() and data.fingerprint("clients") != whole.fingerprint("clients")
    assert pickle.loads(pickle.dumps(data)).judged(SETTINGS.names[0]).ids == data.judged(SETTINGS.names[0]).ids

    held = audited(whole, Speakers(clients=6, utterances=2), 1)
    outside = {name for name, taken in held.candidates.items() if not taken}
    assert len(held.candidates) == 6 and set(whole.client_ids()) - set(held.client_ids()) == outside
    assert len(held.judged(outside.pop())) == 2
    with pytest.raises(ValueError, match=f"has {len(whole.client_ids())} clients, fewer than audit.clients"):
        audited(whole, Speakers(clients=100), 1)


def test_canaries_say_the_words_of_the_clients_in_random_order_and_have_their_labels(made: Manifest) -> None:
    words = {word for text in TEXTS for word in text.split()}
    for canary in made:
        assert 4 <= len((canary.text or "").split()) <= 8
        assert set((canary.text or "").split()) <= words
        assert canary.label in {"l0", "l1", "l2"}
        assert canary.translation is None
    assert len(set(made.column("text"))) > len(made) / 4


def test_rows_describe_the_audio(made: Manifest) -> None:
    ends: dict[str, float] = {}
    for row in sorted(made.take(np.arange(24)), key=lambda row: row.utterance):
        assert row.offset == ends.get(row.path, 0.0)
        ends[row.path] = row.offset + row.seconds
    assert len(ends) == 8
    for path, end in ends.items():
        samples, rate = soundfile.read(path)
        assert len(samples) == end * rate
        assert np.abs(samples).max() > 0.01


def test_speed_shortens_the_speech(made: Manifest, cache: Path) -> None:
    slow = make(Canaries(clients=8, utterances=3, repeat=2, speed=1.0), 1, cache)
    assert slow.column("text") == made.column("text")
    pauses = 0.35  # s: the mean pauses before and after an utterance, together
    spoken = [sum(row.seconds - pauses for row in each) for each in (slow, made)]
    assert spoken[0] / spoken[1] == pytest.approx(2.0, rel=0.15)


def test_the_same_names_give_the_same_canaries_and_further_ones_change_nothing(made: Manifest, tmp_path: Path) -> None:
    again = make(SETTINGS, 1, tmp_path / "other")
    more = make(Canaries(clients=10, utterances=3, repeat=2), 1, tmp_path)
    for other in (again, more):
        rows = {row.utterance: row for row in other}
        for row in made:
            assert rows[row.utterance].text == row.text
            assert Path(rows[row.utterance].path).read_bytes() == Path(row.path).read_bytes()
    assert make(SETTINGS, 2, tmp_path).column("text") != made.column("text")


def test_clients_without_transcripts_have_canaries_without_them(cache: Path) -> None:
    silent = make(Canaries(clients=8, utterances=1, repeat=1), 1, cache, (None, None))
    assert set(silent.column("text")) == {None}
    assert set(silent.column("label")) <= {"l0", "l1"}


def test_a_client_with_the_name_of_a_canary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the speaker 'canary-x' has the name of a canary"):
        make(SETTINGS, 1, tmp_path, speaker="canary-x")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (DataSettings(clients=PartitionSettings(by="iid", count=3)), "by=speaker, not iid"),
        (DataSettings(clients=PartitionSettings(count=3)), "data.clients.count would leave some of the canaries out"),
        (DataSettings(clients=PartitionSettings(max_utterances=5)), "a canary has 3 x 2 utterances"),
        (DataSettings(clients=PartitionSettings(min_utterances=7)), "a canary has 3 x 2 utterances"),
        (DataSettings(own_share=0.2), "data.own_share would keep back what a candidate is judged by"),
    ],
)
def test_settings_that_would_break_canaries_up_are_refused(data: DataSettings, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_candidates(SETTINGS, data)
    check_candidates(SETTINGS, DataSettings(clients=PartitionSettings(min_utterances=6, max_utterances=6)))
    check_candidates(Speakers(), DataSettings(clients=PartitionSettings(count=3)))
