"""The embedded corpus as a twin of Common Voice: few speakers have most utterances, and places differ."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedray.core.parallel import serial
from fedray.data.corpora.synthesis import speakers
from fedray.data.corpora.synthesis.embedded import Embedded
from fedray.data.corpora.synthesis.sessions import utterance_count
from fedray.data.corpora.synthesis.speakers import Conditions
from fedray.data.federation.settings import DataSettings, ServerDataSettings
from fedray.data.federation.speech_data import divide
from tests.data.corpora.synthesis.test_embedded import synthesiser  # noqa: F401
from tests.data.corpora.synthesis.test_embedded_kinds import small


def test_three_percent_of_the_speakers_have_half_of_the_utterances() -> None:
    """About 117 of 4,212 speakers have half, as in French (Gao et al., 2022), and the mean is client_utterances."""
    corpus = Embedded(tail=1.9)
    sizes = np.sort([utterance_count(corpus, "clients", 74, f"s{number}", 0) for number in range(4212)])
    largest = int((np.cumsum(sizes[::-1]) < sizes.sum() / 2).sum()) + 1
    assert 90 <= largest <= 160 and 9 <= np.median(sizes) <= 16 and sizes.min() == 1 and 55 <= sizes.mean() <= 95
    assert utterance_count(corpus, "dev", 20, "s0", 0) == 20
    assert utterance_count(Embedded(), "clients", 60, "s0", 0) == 60


def test_the_largest_speakers_warm_the_server_up(tmp_path: Path, synthesiser: None) -> None:  # noqa: F811
    splits = small("commands", 12, 5, languages=["fr"], tail=1.5, dev_speakers=1, dev_utterances=2).read(
        None, 0, tmp_path, serial
    )
    assert list(splits) == ["train", "dev"]
    sizes = Counter(splits["train"].column("speaker"))
    assert len(sizes) == 12 and len(set(sizes.values())) > 4
    server, clients, _ = divide(splits, DataSettings(server=ServerDataSettings(utterances=0.5, largest=True)))
    assert server is not None and len(server) >= len(clients)
    assert min(sizes[name] for name in server.column("speaker")) >= max(
        sizes[name] for name in clients.column("speaker")
    )


def test_speakers_differ_more_than_their_utterances() -> None:
    places = [
        speakers.draw(f"s{number}", "fr", Conditions(snr=[0.0, 30.0], snr_within=2.0), 0).place for number in range(200)
    ]
    middles = [sum(place.snr) / 2 for place in places]
    assert all(place.snr[1] - place.snr[0] == pytest.approx(4.0) for place in places)
    assert 0 <= min(middles) < 3 and 27 < max(middles) <= 30
    without = [speakers.draw(f"s{number}", "fr", Conditions(snr=[0.0, 30.0]), 0).place for number in range(200)]
    assert [place.equaliser for place in without] == [place.equaliser for place in places], (
        "snr_within changes no other draw"
    )


def test_impossible_settings_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tail must be at least 0, not -1"):
        Embedded(tail=-1).read(None, 0, tmp_path, serial)
    with pytest.raises(ValueError, match="data.options.clients.snr_within: give 0 dB or more"):
        Embedded(clients=Conditions(snr_within=-1.0)).read(None, 0, tmp_path, serial)
