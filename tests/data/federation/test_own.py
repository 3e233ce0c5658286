"""What clients hold out of their data: the split "own"."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from fedray.core.parallel import serial
from fedray.data.corruption import CorruptionSettings
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.audited import AuditedSpeech
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import federate
from fedray.data.manifest import Manifest
from tests import speech


def test_clients_hold_out_a_part_of_their_own(splits: dict[str, Manifest], tmp_path: Path) -> None:
    """Each client holds out one of its three utterances, which no setting damages; the other splits stay."""
    wrong = CorruptionSettings(label_errors=1.0)
    plain = speech.federation(splits, DataSettings(), tmp_path)
    clean = speech.federation(splits, DataSettings(own_share=0.3), tmp_path)
    data = speech.federation(splits, DataSettings(own_share=0.3, corruption=wrong), tmp_path)
    assert list(data.splits()) == [*plain.splits(), "own"] and len(data.evaluation("own")) == len(data.client_ids())
    for client in data.client_ids():
        own, everything = data.client_part(client, "own"), plain.load(client)
        assert own is not None and len(own) == 1 and data.cost(client) == 2
        assert sorted([*own.ids, *data.load(client).ids]) == sorted(everything.ids)
        assert own.texts == [dict(zip(everything.ids, everything.texts, strict=True))[own.ids[0]]], "not corrupted"
        assert data.client_part(client, "test") is None
    assert clean.evaluation("own").ids == data.evaluation("own").ids
    assert sum((data.load(client).texts != clean.load(client).texts) for client in data.client_ids()) == 8
    again = pickle.loads(pickle.dumps(data))
    assert again.client_part("s00", "own").ids == data.client_part("s00", "own").ids
    with pytest.raises(ValueError, match="data.own_share makes a split own, and the corpus has one"):
        speech.federation(splits | {"own": splits["test"]}, DataSettings(own_share=0.3), tmp_path)


def test_what_clients_outside_an_audit_hold_out_is_not_scored(splits: dict[str, Manifest], tmp_path: Path) -> None:
    data = speech.federation(splits, DataSettings(own_share=0.3), tmp_path)
    outside, *inside = data.client_ids()
    audited = pickle.loads(pickle.dumps(AuditedSpeech(data, {outside: False}, 1)))
    assert set(audited.evaluation("own").speakers) == set(inside)
    assert all(audited.client_part(client, "own").ids == data.client_part(client, "own").ids for client in inside)


def test_what_is_held_out_is_scaled_without_the_noise_of_others(tmp_path: Path) -> None:
    splits = speech.splits(tmp_path, speakers=8, utterances=6)
    features = LogMelSettings(sample_rate=speech.RATE, bins=20, normalise="speaker")
    settings = DataSettings(own_share=0.34, corruption=CorruptionSettings(snr_db=0.0))
    data, _ = federate(splits, settings, features, tmp_path, serial)
    for client in data.client_ids():
        own = data.client_part(client, "own")
        assert own is not None and len(own) == 2
        assert abs(float(np.concatenate([own.features[row] for row in own.rows]).mean())) < 0.01
