"""FedSTAR's division: sizes within bounds, both parts dealt separately, and a few labels for each client."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedray.core.parallel import serial
from fedray.data.corpora.formats.tsv import Tsv
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.labelled import LabelledSettings, shared_rows
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import federate
from fedray.data.federation.uneven import dealt, dealt_by_label, sizes
from fedray.data.manifest import Manifest
from tests import keywords, speech


def drawn(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("spread", [0.0, 0.25, 0.5, 0.9])
def test_sizes_lie_within_their_mean_and_add_up(spread: float) -> None:
    for seed in range(50):
        for total, count in ((1500, 15), (997, 30), (45, 15), (1000, 2), (10, 1)):
            found, mean = sizes(total, count, spread, drawn(seed)), total / count
            assert found.sum() == total and found.min() >= 1
            assert found.min() > mean * (1 - spread) - 1 and found.max() < mean * (1 + spread) + 1


def test_sizes_use_the_room_they_have() -> None:
    found = np.concatenate([sizes(10_000, 10, 0.25, drawn(seed)) for seed in range(200)]) / 1000
    assert found.min() < 0.77 and found.max() > 1.23
    assert found.std() == pytest.approx(0.25 / np.sqrt(3), rel=0.2), (
        "of an even draw; a little less, since they must add up"
    )
    assert not sizes(100, 10, 0.0, drawn(0)).std()


def test_nobody_goes_without_while_there_is_enough() -> None:
    assert all(sizes(total, 15, 0.9, drawn(seed)).min() == 1 for total in (15, 17, 20) for seed in range(20))
    few = sizes(7, 15, 0.25, drawn(0))
    assert few.sum() == 7 and few.max() == 1


def test_dealt_at_random() -> None:
    found = dealt(1000, 10, 0.25, drawn(0))
    assert np.bincount(found).tolist() == sizes(1000, 10, 0.25, drawn(0)).tolist()
    assert (np.diff(found) < 0).sum() > 300


def corpus(size: int = 1200, labels: int = 12) -> Manifest:
    columns = {
        "utterance": [f"u{i:04d}" for i in range(size)],
        "path": ["/x"] * size,
        "seconds": [1.0] * size,
        "speaker": ["s"] * size,
    }
    return Manifest.from_columns(columns | {"label": [f"word{i % labels:02d}" for i in range(size)]}, "x")


def test_labelled_and_unlabelled_are_dealt_each_for_itself() -> None:
    manifest = corpus()
    mask = shared_rows(manifest, LabelledSettings(share=0.1), 0)
    assert mask is not None
    clients = partition(manifest, PartitionSettings(by="uneven", count=15), 0, mask)
    assert sorted(np.concatenate(list(clients.values()))) == list(range(1200)) and len(clients) == 15
    for part in (mask, ~mask):
        held, mean = [int(part[rows].sum()) for rows in clients.values()], part.sum() / 15
        assert 0.75 * mean - 1 < min(held) < max(held) < 1.25 * mean + 1 and len(set(held)) > 2
    joined = partition(manifest, PartitionSettings(by="uneven", count=15), 0)
    assert 0.75 * 80 - 1 < min(map(len, joined.values())) < max(map(len, joined.values())) < 1.25 * 80 + 1


@pytest.mark.parametrize(("spread", "numbers"), [(0.0, {3}), (0.25, {2, 3, 4}), (0.5, {2, 3, 4})])
def test_a_client_has_a_few_labels(spread: float, numbers: set[int]) -> None:
    """A client has as many labels as it draws; there is enough of each label for all its clients."""
    codes, seen = np.arange(2400) % 12, Counter()
    for seed in range(30):
        owners = dealt_by_label(codes, 12, 15, 3.0, spread, 0.25, drawn(seed))
        held = [len(set(codes[owners == client])) for client in range(15)]
        seen.update(held)
        holders = np.array([len(set(owners[codes == label])) for label in range(12)])
        assert holders.min() >= 1 and holders.max() - holders.min() <= 1, "labels are taken equally often"
    assert set(seen) == numbers
    assert np.average(list(seen), weights=list(seen.values())) == pytest.approx(3.0, abs=0.1)
    if spread == 0.5:  # uniform from 1.5 to 4.5: a third each; at 25 %, 2.25 to 3.75: a sixth, two thirds, a sixth
        assert all(share / seen.total() == pytest.approx(1 / 3, abs=0.08) for share in seen.values())


def test_a_labels_utterances_are_shared_unevenly_by_those_who_have_it() -> None:
    codes = np.zeros(1000, np.int64)
    held = np.bincount(dealt_by_label(codes, 1, 4, 1.0, 0.0, 0.25, drawn(0)), minlength=4)
    assert held.sum() == 1000 and 187 <= held.min() < held.max() <= 313


def test_a_few_labels_for_the_labelled_part_only() -> None:
    manifest = corpus()
    mask = shared_rows(manifest, LabelledSettings(share=0.5), 0)
    assert mask is not None
    clients = partition(manifest, PartitionSettings(by="uneven", count=15, labels=3), 0, mask)
    labels = np.array(manifest.column("label"))
    for rows in clients.values():
        assert len(set(labels[rows[mask[rows]]])) == 3 and len(set(labels[rows[~mask[rows]]])) > 9


def test_settings_that_cannot_be() -> None:
    def divide(labelled: bool, **settings: float) -> None:
        mask = np.ones(1200, bool) if labelled else None
        partition(corpus(), PartitionSettings(by="uneven", count=15, **settings), 0, mask)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match=r"spread must be at least 0 and below 1, not 1.0"):
        divide(True, spread=1.0)
    with pytest.raises(
        ValueError, match=r"data.clients.labels chooses labels for the labelled part: set data.labelled.share"
    ):
        divide(False, labels=3)
    with pytest.raises(
        ValueError, match=r"data.clients.labels: 0.5 is not a mean number of labels for each client: set at least 1"
    ):
        divide(True, labels=0.5)
    with pytest.raises(ValueError, match=r"data.clients.labels_spread: 1 is not a share"):
        divide(True, labels=3, labels_spread=1)
    with pytest.raises(
        ValueError, match="3 clients with 9 labels in total cannot have all 12 labels: raise data.clients.labels or"
    ):
        partition(corpus(), PartitionSettings(by="uneven", count=3, labels=3), 0, np.ones(1200, bool))


def test_a_federation_of_both_parts(tmp_path: Path) -> None:
    """Of 6 x 8 = 48 training clips a quarter is labelled, and half of the rest is kept."""
    keywords.write_corpus(tmp_path)
    splits = Tsv(train=["manifest.tsv"], label_column="label", split_column="split", seconds_column=None).read(
        tmp_path, 0, tmp_path, serial
    )
    settings = DataSettings(
        clients=PartitionSettings(by="uneven", count=4), labelled=LabelledSettings(share=0.25, unlabelled=0.5)
    )
    data, _ = federate(
        splits, settings, LogMelSettings(sample_rate=speech.RATE, bins=20), tmp_path / "features", serial
    )
    clients = [data.load(client) for client in data.client_ids()]
    assert len(clients) == 4 and all(client.labelled is not None and client.labelled.any() for client in clients)
    known = [np.array(client.labels)[client.labelled] for client in clients]
    assert Counter(np.concatenate(known)) == dict.fromkeys("abcd", 3), "a quarter of the 12 clips of each word"
    unlabelled = [len(client.unlabelled) for client in clients]
    assert 16 <= sum(unlabelled) <= 20, "half of 36, rounded client by client"
    assert len({name for client in clients for name in client.ids}) == sum(map(len, clients))
