"""Corpora that name no speakers: each recording counts as a speaker, so all its pieces stay in one split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedray.core.parallel import serial
from fedray.data.analysis.inspection import unknown_speakers
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.partition import PartitionSettings
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import NoSpeakers, divide, federate
from tests.trees import read, tone, write


def lists(root: Path) -> Path:
    """Write one utterance without a speaker, as a list for every reader."""
    tone(root / "a.wav")
    write(root / "m.tsv", "path\tid\na.wav\tu1\n")
    write(root / "m.csv", "ID,wav\nu1,a.wav\n")
    write(root / "m.json", json.dumps({"id": "u1", "audio_filepath": "a.wav"}) + "\n")
    write(root / "kaldi" / "wav.scp", "u1 a.wav\n")
    return root


CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("tsv", "m.tsv", "speaker_column", {"id_column": "id", "seconds_column": None}),
    ("speechbrain", "m.csv", "speaker_column", {"duration_column": None, "text_column": None}),
    ("nemo", "m.json", "speaker_key", {"text_key": None, "id_key": "id"}),
    ("kaldi", "kaldi", "speaker_file", {"text_file": None}),
]


@pytest.mark.parametrize(("kind", "name", "option", "options"), CASES, ids=[case[0] for case in CASES])
def test_null_means_that_speakers_are_unknown(
    kind: str, name: str, option: str, options: dict[str, Any], tmp_path: Path
) -> None:
    root = lists(tmp_path)
    remedy = rf"set {option} in data.options to .*null.*With null, each recording .* \{{by: iid, count: N\}}"
    with pytest.raises(ValueError, match=remedy):
        read(kind, root, train=[name], **options)
    train = read(kind, root, train=[name], **options, **{option: None})["train"]
    assert train.column("speaker") == train.column("utterance") == ["u1"] and train.anonymous
    first, second = unknown_speakers({"train": train}, "speaker")
    assert "a person may speak both in training and in test" in first.text and "by: iid, count: N" in second.text
    assert len(unknown_speakers({"train": train}, "iid")) == 1


def test_without_speakers_recordings_are_dealt_and_split_at_random(tmp_path: Path) -> None:
    for word in ("no", "yes"):
        for take in range(20):
            tone(tmp_path / "clips" / word / f"{take}.wav")
    splits = read("folders", tmp_path / "clips")
    settings = DataSettings(
        seed=3, clients=PartitionSettings("dirichlet", count=4, alpha=1.0), test_share=0.2, dev_share=0.25
    )
    with pytest.warns(NoSpeakers, match="test and dev are random recordings"):
        _, clients, scored = divide(splits, settings)
    assert [len(part) for part in (clients, scored["test"], scored["dev"])] == [24, 8, 8]
    everyone = [name for part in (clients, *scored.values()) for name in part.column("utterance")]
    assert sorted(everyone) == sorted(splits["train"].column("utterance"))
    with pytest.warns(NoSpeakers):
        assert divide(splits, settings)[2]["test"].column("utterance") == scored["test"].column("utterance")
    with pytest.warns(NoSpeakers):
        data, _ = federate(splits, settings, LogMelSettings(), tmp_path / "features", serial)
    assert len(data.client_ids()) == 4 and sum(data.cost(client) for client in data.client_ids()) == 24


def test_pieces_of_one_recording_stay_on_one_side(tmp_path: Path) -> None:
    rows = []
    for name in "abcdef":
        tone(tmp_path / f"{name}.wav", 3)
        rows += [f"{name}.wav\t{name}{start}\t{start}\t1" for start in range(3)]
    write(tmp_path / "all.tsv", "path\tid\tstart\tseconds\n" + "\n".join(rows) + "\n")
    options = {"train": ["all.tsv"], "id_column": "id", "offset_column": "start"}
    splits = read("tsv", tmp_path, **options, speaker_column=None)
    assert splits["train"].column("speaker")[:4] == ["a0", "a0", "a0", "b0"] and splits["train"].anonymous
    with pytest.warns(NoSpeakers):
        _, clients, scored = divide(splits, DataSettings(test_share=0.4))
    assert len(scored["test"]) == 6 and not set(scored["test"].column("path")) & set(clients.column("path"))
