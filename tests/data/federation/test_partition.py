from __future__ import annotations

import time

import numpy as np
import pytest

from fedray.data.federation.partition import PARTITIONS, PartitionSettings, partition, split_by_speakers
from fedray.data.manifest import Manifest

COUNTS = {"ann": 5, "bob": 3, "cat": 8, "dan": 1, "eve": 7}  # utterances of each speaker


def corpus(order: np.ndarray | None = None) -> Manifest:
    names = [f"{speaker}-{take}" for speaker, count in COUNTS.items() for take in range(count)]
    manifest = Manifest.from_columns(
        {
            "utterance": names,
            "path": [f"/{name}.wav" for name in names],
            "seconds": [1 + index / 7 for index in range(len(names))],
            "speaker": [name.split("-")[0] for name in names],
            "label": [("yes", "no", "stop")[index % 3] for index in range(len(names))],
        },
        "corpus",
    )
    return manifest if order is None else manifest.take(order)


def named(manifest: Manifest, clients: dict[str, np.ndarray]) -> dict[str, set[str]]:
    utterances = np.array(manifest.column("utterance"))
    return {client: set(utterances[rows]) for client, rows in clients.items()}


UNCOUNTED = ("speaker", "k_speakers", "label", "pooled", "server")


@pytest.mark.parametrize("by", PARTITIONS)
def test_every_row_has_one_client_whatever_the_order(by: str) -> None:
    settings = PartitionSettings(by=by, count=None if by in UNCOUNTED else 4)
    manifest = corpus()
    clients = partition(manifest, settings, seed=1)
    assert sorted(np.concatenate(list(clients.values()))) == list(range(len(manifest)))
    assert list(clients) == sorted(clients)
    assert all(rows.dtype == np.int64 and (np.diff(rows) > 0).all() for rows in clients.values())
    shuffled = corpus(np.random.default_rng(0).permutation(len(manifest)))
    again = partition(shuffled, settings, seed=1)
    assert named(shuffled, again) == named(manifest, clients)
    if by not in ("speaker", "silos", "label", "pooled", "server"):  # those follow from the data alone
        other = partition(manifest, settings, seed=2)
        assert named(manifest, other) != named(manifest, clients)


def test_by_speaker() -> None:
    manifest = corpus()
    clients = partition(manifest, PartitionSettings(), seed=0)
    assert {client: len(rows) for client, rows in clients.items()} == COUNTS
    clients = partition(manifest, PartitionSettings(min_utterances=5, max_utterances=6), seed=0)
    assert {client: len(rows) for client, rows in clients.items()} == {"ann": 5, "cat": 6, "eve": 6}
    kept = partition(manifest, PartitionSettings(count=2), seed=0)
    assert len(kept) == 2 and set(kept) < set(COUNTS)
    assert len({tuple(partition(manifest, PartitionSettings(count=2), seed)) for seed in range(20)}) > 3
    with pytest.raises(ValueError, match="4 clients were asked for, but only 3 have 5 utterances"):
        partition(manifest, PartitionSettings(count=4, min_utterances=5), seed=0)
    with pytest.raises(ValueError, match="no client has 9 utterances"):
        partition(manifest, PartitionSettings(min_utterances=9), seed=0)


def test_a_client_with_too_many_keeps_random_ones() -> None:
    names = [f"{speaker}-{take}" for speaker in "abcdefgh" for take in range(8)]
    columns = {"utterance": names, "path": ["/x"] * 64, "seconds": [1.0] * 64, "speaker": [name[0] for name in names]}
    manifest = Manifest.from_columns(columns, "corpus")
    drawn = [partition(manifest, PartitionSettings(max_utterances=3), seed) for seed in range(2)]
    takes = [tuple(rows % 8) for clients in drawn for rows in clients.values()]
    assert len(set(takes)) > 12, "each client and each seed has a draw of its own"


def test_by_label() -> None:
    manifest = corpus()
    clients = partition(manifest, PartitionSettings(by="label"), seed=0)
    labels = np.array(manifest.column("label"))
    assert list(clients) == ["no", "stop", "yes"] and all(
        set(labels[rows]) == {label} for label, rows in clients.items()
    )
    assert len(partition(manifest, PartitionSettings(by="label", count=2), seed=0)) == 2
    unnamed = Manifest.from_rows([{"utterance": "a", "path": "/a", "seconds": 1.0, "speaker": "s"}], "corpus")
    with pytest.raises(ValueError, match="by label needs a label for every utterance"):
        partition(unnamed, PartitionSettings(by="label"), seed=0)


def test_k_speakers_keep_speakers_whole() -> None:
    clients = named(corpus(), partition(corpus(), PartitionSettings(by="k_speakers"), seed=0))
    speakers = [{name.split("-")[0] for name in names} for names in clients.values()]
    assert [len(names) for names in speakers] == [2, 2, 1]
    assert set.union(*speakers) == set(COUNTS)


def test_silos_have_equal_hours_and_disjoint_speakers() -> None:
    generator = np.random.default_rng(0)
    speakers = generator.integers(200, size=5000)
    columns = {
        "utterance": [f"{row:05d}" for row in range(5000)],
        "path": ["/x"] * 5000,
        "seconds": generator.uniform(1, 10, 5000),
        "speaker": [str(speaker) for speaker in speakers],
    }
    manifest = Manifest.from_columns(columns, "x")
    clients = partition(manifest, PartitionSettings(by="silos", count=10), seed=0)
    owners = [set(speakers[rows]) for rows in clients.values()]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 200
    seconds = [manifest.array("seconds")[rows].sum() for rows in clients.values()]
    assert max(seconds) / min(seconds) < 1.01


def test_iid_is_equal() -> None:
    sizes = [len(rows) for rows in partition(corpus(), PartitionSettings(by="iid", count=5), seed=0).values()]
    assert sorted(sizes) == [4, 5, 5, 5, 5]


def test_dirichlet_skew_follows_alpha() -> None:
    size, labels, count = 20_000, 10, 20
    columns = {
        "utterance": [f"{row:06d}" for row in range(size)],
        "path": ["/x"] * size,
        "seconds": np.ones(size),
        "speaker": ["s"] * size,
    }
    manifest = Manifest.from_columns(columns | {"label": [str(row % labels) for row in range(size)]}, "x")

    def share_of_commonest(alpha: float) -> float:
        clients = partition(manifest, PartitionSettings(by="dirichlet", count=count, alpha=alpha), seed=0)
        return float(np.mean([np.bincount(rows % labels).max() / len(rows) for rows in clients.values()]))

    # A label's shares over the clients vary by 1/sqrt(alpha * count) at most. At alpha = 1000, each label is about a
    # tenth of every client's utterances.
    assert share_of_commonest(1000) < 1.2 / labels
    assert share_of_commonest(0.1) > 3 / labels


def test_with_a_tiny_alpha_each_label_has_one_client() -> None:
    manifest = corpus()
    settings = PartitionSettings(by="dirichlet", count=5, alpha=1e-6, min_utterances=0)
    for seed in range(5):
        clients = partition(manifest, settings, seed).values()
        assert sum(len(set(np.array(manifest.column("label"))[rows])) for rows in clients) == 3


def test_dirichlet_deals_speakers_whole() -> None:
    manifest = corpus()
    clients = partition(manifest, PartitionSettings(by="dirichlet", count=2, alpha=10, whole_speakers=True), seed=0)
    owners = [{name.split("-")[0] for name in names} for names in named(manifest, clients).values()]
    assert owners[0].isdisjoint(owners[1]) and owners[0] | owners[1] == set(COUNTS)
    assert sum(map(len, clients.values())) == len(manifest)
    with pytest.raises(ValueError, match="5 speakers cannot be divided among 6 clients"):
        partition(manifest, PartitionSettings(by="dirichlet", count=6, whole_speakers=True), seed=0)
    with pytest.raises(ValueError, match="whole_speakers is for by: dirichlet, not iid: remove it"):
        PartitionSettings(by="iid", count=2, whole_speakers=True)


def test_dirichlet_errors_name_the_remedy() -> None:
    manifest = corpus()
    with pytest.raises(ValueError, match="name the column of the labels in data.options, or divide by speaker"):
        columns = {name: manifest.column(name) for name in ("utterance", "path", "seconds", "speaker")}
        partition(Manifest.from_columns(columns, "x"), PartitionSettings(by="dirichlet", count=2), seed=0)
    with pytest.raises(ValueError, match="raise alpha, or lower count or min_utterances"):
        partition(manifest, PartitionSettings(by="dirichlet", count=6, alpha=0.01, min_utterances=3), seed=0)
    sparse = partition(manifest, PartitionSettings(by="dirichlet", count=20, alpha=0.01, min_utterances=0), seed=0)
    assert 0 < len(sparse) < 20 and sum(map(len, sparse.values())) == len(manifest)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (PartitionSettings(by="speakers"), "choose one of speaker, k_speakers"),
        (PartitionSettings(by="iid"), "needs data.clients.count"),
        (PartitionSettings(by="iid", count=25), "24 utterances cannot be divided among 25 clients"),
        (PartitionSettings(by="silos", count=6), "5 speakers cannot be divided among 6 clients"),
        (
            PartitionSettings(by="pooled", count=1),
            "data.clients.count chooses among clients; .* makes a single client",
        ),
        (PartitionSettings(by="pooled", max_utterances=9), "data.clients.max_utterances chooses among clients"),
    ],
)
def test_settings_that_cannot_be(settings: PartitionSettings, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        partition(corpus(), settings, seed=0)


def test_split_by_speakers() -> None:
    manifest = corpus()
    speakers = np.array(manifest.column("speaker"))
    server, clients = split_by_speakers(manifest, seed=0, share=0.4)
    assert len(set(speakers[server])) == 2 and not set(speakers[server]) & set(speakers[clients])
    assert sorted([*server, *clients]) == list(range(len(manifest)))
    order = np.random.default_rng(0).permutation(len(manifest))
    shuffled = split_by_speakers(manifest.take(order), seed=0, share=0.4)[0]
    assert set(speakers[order][shuffled]) == set(speakers[server])
    assert len({tuple(split_by_speakers(manifest, seed=seed, share=0.4)[0]) for seed in range(30)}) > 3
    assert len(set(speakers[split_by_speakers(manifest, seed=0, share=0.01)[0]])) == 1
    assert len(set(speakers[split_by_speakers(manifest, seed=0, share=0.99)[0]])) == 4


def test_split_by_hours() -> None:
    manifest = corpus()
    speakers, seconds = np.array(manifest.column("speaker")), manifest.array("seconds")
    spoken = {speaker: seconds[speakers == speaker].sum() for speaker in COUNTS}
    longest = sorted(spoken, key=lambda speaker: -spoken[speaker])
    server, _ = split_by_speakers(manifest, seed=0, hours=(spoken[longest[0]] + 1) / 3600, largest=True)
    assert set(speakers[server]) == set(longest[:2])
    server, _ = split_by_speakers(manifest, seed=0, hours=spoken[longest[0]] / 3600, largest=True)
    assert set(speakers[server]) == set(longest[:1])
    for wrong in ({}, {"share": 0.5, "hours": 1}):
        with pytest.raises(ValueError, match="by share, hours or utterances"):
            split_by_speakers(manifest, seed=0, **wrong)
    for hours in (0, 1):
        with pytest.raises(ValueError, match="leave no speaker"):
            split_by_speakers(manifest, seed=0, hours=hours)
    with pytest.raises(ValueError, match="needs two"):
        split_by_speakers(manifest.take([0, 1]), seed=0, share=0.5)


def test_split_by_utterances() -> None:
    """The server gets the fewest of the largest speakers that have the share; cat has 8 of 24, eve 7, ann 5."""
    manifest = corpus()
    speakers = np.array(manifest.column("speaker"))
    for share, server in ((0.33, {"cat"}), (0.34, {"cat", "eve"}), (0.5, {"cat", "eve"}), (0.7, {"ann", "cat", "eve"})):
        mine, theirs = split_by_speakers(manifest, seed=0, utterances=share, largest=True)
        assert set(speakers[mine]) == server and set(speakers[theirs]) == set(COUNTS) - server
    assert len(set(speakers[split_by_speakers(manifest, seed=0, utterances=0.999)[1]])) == 1


def test_two_hundred_thousand_rows_take_no_loop() -> None:
    size = 200_000
    generator = np.random.default_rng(0)
    columns = {
        "utterance": [f"u{row:07d}" for row in generator.permutation(size)],
        "path": ["/x.wav"] * size,
        "seconds": generator.uniform(1, 10, size),
        "speaker": [f"s{speaker}" for speaker in generator.integers(5000, size=size)],
    }
    manifest = Manifest.from_columns(columns, "x")
    start = time.process_time()
    clients = partition(manifest, PartitionSettings(), seed=0)
    assert sum(map(len, clients.values())) == size
    assert time.process_time() - start < 2  # 0.2 s when measured; a Python loop over rows and clients takes minutes
