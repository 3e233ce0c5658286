from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.corpora.formats.tsv import Tsv
from fedray.data.features.log_mel import FeatureSettings
from fedray.data.federation.canaries import AuditSettings, Canaries, is_canary, make_canaries
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.speech_data import DataSettings, federate
from fedray.data.manifest import Manifest
from tests import speech

TEXTS = ("TURN ON THE LIGHT", "CLOSE EVERY DOOR", "PLAY SOME MUSIC")
SETTINGS = AuditSettings(clients=8, utterances=3, repeat=2)


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


@pytest.fixture(scope="module")
def made(cache: Path) -> Canaries:
    return make_canaries(clients(), SETTINGS, 1, cache, serial)


def test_each_canary_is_inside_or_outside_and_trains_its_utterances_repeatedly(made: Canaries) -> None:
    inside, outside = set(made.inside.column("speaker")), set(made.outside.column("speaker"))
    assert inside | outside == {f"canary-{i:04d}" for i in range(8)}
    assert not inside & outside
    assert min(len(inside), len(outside)) >= 2
    assert len(made.inside) == 3 * len(inside)
    assert len(made.outside) == 3 * len(outside)
    assert len(made.training) == 2 * len(made.inside)
    assert sorted(made.training.column("text")) == sorted(2 * made.inside.column("text"))


def test_a_canary_is_a_client_that_its_name_tells(made: Canaries) -> None:
    everyone = made.among(clients())
    members = partition(everyone, PartitionSettings(), seed=0)
    found = {name for name in members if is_canary(name)}
    assert found == set(made.inside.column("speaker"))
    assert set(members) - found == {"anna"}
    assert all(len(members[name]) == 6 for name in found)
    Manifest.concat([made.training, made.inside, made.outside]).check()


def test_a_federation_trains_canaries_and_scores_those_inside_and_outside(cache: Path, tmp_path: Path) -> None:
    speech.write_corpus(tmp_path, speakers=10, utterances=3)
    table = Tsv(train=["manifest.tsv"], text_column="text", split_column="split", seconds_column=None)
    splits = table.read(tmp_path, 0, tmp_path, serial)
    canaries = make_canaries(splits["train"], SETTINGS, 1, cache, serial)
    splits |= {"train": canaries.among(splits["train"]), "inside": canaries.inside, "outside": canaries.outside}
    data, broken = federate(splits, DataSettings(), FeatureSettings(bins=20), tmp_path / "features", serial)
    assert not broken
    names = sorted(filter(is_canary, data.client_ids()))
    assert names == sorted(set(canaries.inside.column("speaker")))
    scored = data.evaluation("inside")
    mine = [text for text, speaker in zip(scored.texts, scored.speakers, strict=True) if speaker == names[0]]
    assert len(mine) == 3 and sorted(data.load(names[0]).texts) == sorted(2 * mine)
    assert len(data.client_ids()) == 8 + len(names)
    assert not set(data.evaluation("outside").speakers) & set(data.client_ids())


def test_canaries_say_the_words_of_the_clients_in_random_order_and_have_their_labels(made: Canaries) -> None:
    words = {word for text in TEXTS for word in text.split()}
    for canary in [*made.inside, *made.outside]:
        assert 4 <= len((canary.text or "").split()) <= 8
        assert set((canary.text or "").split()) <= words
        assert canary.label in {"l0", "l1", "l2"}
        assert canary.translation is None
    assert len(set(made.inside.column("text"))) > len(made.inside) / 2


def test_rows_describe_the_audio(made: Canaries) -> None:
    ends: dict[str, float] = {}
    for row in sorted([*made.inside, *made.outside], key=lambda row: row.utterance):
        assert row.offset == ends.get(row.path, 0.0)
        ends[row.path] = row.offset + row.seconds
    assert len(ends) == 8
    for path, end in ends.items():
        samples, rate = soundfile.read(path)
        assert len(samples) == end * rate
        assert np.abs(samples).max() > 0.01


def test_speed_shortens_the_speech(made: Canaries, cache: Path) -> None:
    slow = make_canaries(clients(), AuditSettings(clients=8, utterances=3, repeat=2, speed=1.0), 1, cache, serial)
    assert slow.outside.column("text") == made.outside.column("text")
    pauses = 0.35  # seconds around an utterance: the mean of those before and after
    spoken = [sum(row.seconds - pauses for row in each.outside) for each in (slow, made)]
    assert spoken[0] / spoken[1] == pytest.approx(2.0, rel=0.15)


def test_the_same_names_give_the_same_canaries_and_further_ones_change_nothing(made: Canaries, tmp_path: Path) -> None:
    again = make_canaries(clients(), SETTINGS, 1, tmp_path / "other", serial)
    more = make_canaries(clients(), AuditSettings(clients=10, utterances=3, repeat=2), 1, tmp_path, serial)
    for first, second in ((made, again), (made, more)):
        for part in ("inside", "outside"):
            rows = {row.utterance: row for row in getattr(second, part)}
            for row in getattr(first, part):
                assert rows[row.utterance].text == row.text
                assert Path(rows[row.utterance].path).read_bytes() == Path(row.path).read_bytes()
    other = make_canaries(clients(), SETTINGS, 2, tmp_path, serial)
    assert other.inside.column("text") != made.inside.column("text")


def test_clients_without_transcripts_have_canaries_without_them(cache: Path) -> None:
    few = AuditSettings(clients=8, utterances=1, repeat=1)
    silent = make_canaries(clients((None, None)), few, 1, cache, serial)
    assert set(silent.inside.column("text")) == {None}
    assert set(silent.inside.column("label")) <= {"l0", "l1"}


def test_a_client_with_the_name_of_a_canary_is_refused(made: Canaries) -> None:
    with pytest.raises(ValueError, match="the speaker 'canary-x' has the name of a canary"):
        made.among(clients(speaker="canary-x"))


def test_coins_that_leave_too_few_on_a_side_are_refused(tmp_path: Path) -> None:
    seed = next(seed for seed in range(100) if _refused(seed, tmp_path))
    with pytest.raises(ValueError, match="of 4 canaries . take part, and an audit needs two"):
        make_canaries(clients(), AuditSettings(clients=4, utterances=1), seed, tmp_path, serial)


def _refused(seed: int, cache: Path) -> bool:
    try:
        make_canaries(clients(), AuditSettings(clients=4, utterances=1), seed, cache, serial)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        (PartitionSettings(by="iid", count=3), "by=speaker, not iid"),
        (PartitionSettings(count=3), "data.clients.count would leave some of the canaries out"),
        (PartitionSettings(max_utterances=5), "a canary has 3 x 2 utterances"),
        (PartitionSettings(min_utterances=7), "a canary has 3 x 2 utterances"),
    ],
)
def test_a_partition_that_would_break_canaries_up_is_refused(partition: PartitionSettings, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SETTINGS.check(partition)
    AuditSettings().check(partition)
    SETTINGS.check(PartitionSettings(min_utterances=6, max_utterances=6))


@pytest.mark.parametrize(("values", "words"), [({"clients": 3}, "at least 4"), ({"speed": 9.0}, "from 0.5 to 4")])
def test_settings_out_of_range_are_refused(values: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AuditSettings(**values)  # type: ignore[arg-type]
