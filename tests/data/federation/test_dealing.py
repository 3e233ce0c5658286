"""Held-out, labelled and damaged utterances fit together, even if some audio is broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedray.data.corruption import CorruptionSettings
from fedray.data.federation.held_out import hold_out
from fedray.data.federation.labelled import LabelledSettings
from fedray.data.federation.settings import DataSettings
from fedray.data.manifest import Manifest
from tests import speech


@pytest.fixture
def splits(tmp_path: Path) -> dict[str, Manifest]:
    return speech.splits(tmp_path, speakers=6, utterances=4)


def test_the_seed_decides_what_is_held_out(splits: dict[str, Manifest]) -> None:
    clients = {"one": np.arange(8), "other": np.arange(8, 16)}
    held = [hold_out(splits["train"], clients, 0.25, seed)[1] for seed in range(6)]
    assert len({tuple(parts["one"]) for parts in held}) > 1
    assert any((parts["one"] + 8 != parts["other"]).any() for parts in held), "each client has a draw of its own"


def test_a_small_share_of_two_is_one_and_of_one_is_none(splits: dict[str, Manifest]) -> None:
    clients = {"one": np.arange(1), "two": np.arange(1, 3), "five": np.arange(3, 8)}
    training, held = hold_out(splits["train"], clients, 0.05, 0)
    assert {client: len(rows) for client, rows in held.items()} == {"one": 0, "two": 1, "five": 1}
    assert all(sorted([*training[client], *held[client]]) == rows.tolist() for client, rows in clients.items())


def test_speakers_are_held_out_whole(splits: dict[str, Manifest]) -> None:
    train = splits["train"]
    speakers = np.array(train.column("speaker"))
    one, two, three = (np.flatnonzero(np.isin(speakers, sorted(set(speakers))[:count])) for count in (1, 2, 3))
    for share, of_three in ((0.05, 4), (0.4, 8), (0.9, 8)):  # of three speakers with four utterances each
        training, held = hold_out(train, {"one": one, "two": two, "three": three}, share, 0, whole_speakers=True)
        assert {client: len(rows) for client, rows in held.items()} == {"one": 0, "two": 4, "three": of_three}
        for client, rows in held.items():
            assert set(speakers[rows]).isdisjoint(speakers[training[client]])


def test_labels_that_no_client_reads_are_not_damaged(splits: dict[str, Manifest], tmp_path: Path) -> None:
    settings = DataSettings(labelled=LabelledSettings(utterances=0.5))
    clean = speech.federation(splits, settings, tmp_path / "cache")
    damaged = replace(settings, corruption=CorruptionSettings(label_errors=1.0))
    wrong = speech.federation(splits, damaged, tmp_path / "cache")
    for client in clean.client_ids():
        before, after = clean.load(client), wrong.load(client)
        assert before.labelled is not None and 0 < before.labelled.sum() < len(before)
        changed = [one != other for one, other in zip(before.texts, after.texts, strict=True)]
        assert changed == before.labelled.tolist()


@pytest.mark.parametrize("take", range(4))
def test_broken_audio_of_a_client_changes_nothing_for_others(
    splits: dict[str, Manifest], tmp_path: Path, take: int
) -> None:
    settings = DataSettings(own_share=0.5, labelled=LabelledSettings(utterances=0.5), skip_broken=True)
    plain = replace(settings, own_share=0.0)
    whole = speech.federation(splits, settings, tmp_path / "whole")
    (tmp_path / "wav" / f"s01-{take}.wav").write_bytes(b"")
    data, undivided = (speech.federation(splits, given, tmp_path / "broken") for given in (settings, plain))
    for client in whole.client_ids():
        before, after = whole.load(client), data.load(client)
        sound = [name for name in before.ids if f"s01-{take}" not in name]
        own = [name for name in whole.client_part(client, "own").ids if f"s01-{take}" not in name]
        assert after.ids == sound and data.client_part(client, "own").ids == own
        if client != "s01":
            assert after.labelled.tolist() == before.labelled.tolist()
    assert undivided.load("s01").labelled.sum() == 2, "half of the three that are left, 1.5 to the even"
