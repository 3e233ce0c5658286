"""Statistics of clients, checked by hand and on audio of which some is broken."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.analysis import differences
from fedray.data.analysis.acoustics import MEASURES, SAMPLE_RATE
from fedray.data.analysis.differences import Sounds
from fedray.data.manifest import Manifest


def sounds(clients: list[int], loudness: list[float], embeddings: np.ndarray | None = None) -> Sounds:
    values = np.zeros((len(clients), len(MEASURES)))
    values[:, 0] = loudness
    names = [f"c{number}" for number in range(max(clients) + 1)]
    return Sounds(
        names,
        np.array(clients),
        values,
        np.zeros((len(clients), 2), np.float32) if embeddings is None else embeddings,
        [],
    )


def test_spread_between_and_within_clients() -> None:
    one = sounds([0, 0, 1, 1, 1, 2, 3], [1, 3, 5, 5, 8, 4, math.nan])
    means, deviations = (
        np.array([2, 6, 4.0]),
        np.array([math.sqrt(2), math.sqrt(3)]),
    )  # client 2 has one value, client 3 none
    found = differences.spread(one, "loudness")
    assert found.mean == pytest.approx(4) and found.between == pytest.approx(means.std(ddof=1))
    assert found.within == pytest.approx(deviations.std(ddof=1))
    assert found.kurtosis == pytest.approx(np.mean((means - 4) ** 4) / np.mean((means - 4) ** 2) ** 2 - 3)


def test_too_few_clients_have_no_spread() -> None:
    found = differences.spread(sounds([0, 1], [1, math.nan]), "loudness")
    assert found.mean == 1 and all(map(math.isnan, (found.between, found.within, found.kurtosis)))
    found = differences.spread(sounds([0, 0, 1, 1], [1, 1, 1, 1]), "loudness")
    assert (found.between, found.within) == (0, 0) and math.isnan(found.kurtosis)


def test_purity_and_the_picture_of_clients_that_lie_apart() -> None:
    clients = [number for number in range(4) for _ in range(6)]
    generator = np.random.default_rng(0)
    apart = (100 * np.eye(4)[clients] + generator.standard_normal((24, 4))).astype(np.float32)
    alike = generator.standard_normal((24, 4)).astype(np.float32)
    assert differences.purity(sounds(clients, [0.0] * 24, apart), seed=0) == 1
    assert differences.purity(sounds(clients, [0.0] * 24, alike), seed=0) < 0.75
    owners, places = differences.picture(sounds(clients, [0.0] * 24, apart), seed=0)
    assert owners.tolist() == clients and places.shape == (24, 2)
    assert np.array_equal(places, differences.picture(sounds(clients, [0.0] * 24, apart), seed=0)[1])


def test_each_utterance_of_a_file_is_heard_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = np.array([0.1, 0.2, 0.3, 0.4])
    soundfile.write(tmp_path / "a.wav", np.repeat(levels, SAMPLE_RATE), SAMPLE_RATE, subtype="FLOAT")
    rows = [
        {"utterance": f"u{at}", "path": str(tmp_path / "a.wav"), "offset": at, "seconds": 1.0, "speaker": f"s{at % 2}"}
        for at in range(4)
    ]
    monkeypatch.setattr(differences.acoustics, "measure", lambda waveform: (0.0,) * len(MEASURES))
    owners = {"s0": np.array([0, 2]), "s1": np.array([1, 3])}
    found = differences.measure(Manifest.from_rows(rows, "test"), owners, lambda heard: heard[:1], serial, "test")
    np.testing.assert_allclose(found.embeddings[:, 0], levels[[0, 2, 1, 3]], rtol=1e-6)


def test_each_dimension_of_an_embedding_counts_alike() -> None:
    embeddings = np.random.default_rng(0).normal([5, -3], [1, 100], (200, 2)).astype(np.float32)
    found = differences.scaled(embeddings)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-4)


def test_a_sample_is_drawn_by_name() -> None:
    rows = {f"c{number:02d}": np.arange(10 * number, 10 * number + 1 + number) for number in range(20)}
    drawn = differences.sample(rows, clients=5, utterances=3, seed=1)
    assert len(drawn) == 5 and all(len(mine) <= 3 and set(mine) <= set(rows[name]) for name, mine in drawn.items())
    again = differences.sample(dict(reversed(rows.items())), clients=5, utterances=3, seed=1)
    assert {name: mine.tolist() for name, mine in again.items()} == {
        name: mine.tolist() for name, mine in drawn.items()
    }
    assert len(differences.sample(rows, 100, 100, 1)) == 20


@pytest.mark.long
def test_what_cannot_be_measured_is_left_out_and_named(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = []
    for speaker in ("ann", "bob"):
        for number in range(2):
            soundfile.write(
                tmp_path / f"{speaker}{number}.wav", 0.1 * generator.standard_normal(SAMPLE_RATE // 2), SAMPLE_RATE
            )
            rows.append(
                {
                    "utterance": f"{speaker}{number}",
                    "path": str(tmp_path / f"{speaker}{number}.wav"),
                    "seconds": 0.5,
                    "speaker": speaker,
                }
            )
    rows[0]["seconds"] = 0.05
    (tmp_path / "bob1.wav").write_bytes(b"RIFF")
    manifest = Manifest.from_rows(rows, "test")
    owners = {"ann": np.array([0, 1]), "bob": np.array([2, 3])}
    found = differences.measure(manifest, owners, lambda waveform: waveform[:2], serial, "test")
    assert found.clients.tolist() == [0, 1] and found.embeddings.shape == (2, 2) and found.population == 2
    assert found.left_out[0] == "utterance ann0: 50 ms is too short to be measured: 60 ms is needed"
    assert "bob1.wav" in found.left_out[1]
    with pytest.raises(ValueError, match="fewer than two have speech that can be measured: utterance ann0"):
        unreadable = {"ann": np.array([0, 1]), "bob": np.array([3])}
        differences.measure(manifest, unreadable, lambda waveform: waveform[:2], serial, "test")
