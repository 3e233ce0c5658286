"""From a corpus to a federation: who the clients are, what the server has, what is scored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedray.core.cache import key
from fedray.core.parallel import Parallel
from fedray.data.corruption import CorruptionSettings, corrupt_labels
from fedray.data.dataset import Utterances, shard
from fedray.data.features import FeatureSettings, FeatureStore, build_features
from fedray.data.joined import JoinedFeatures
from fedray.data.labelled import LabelledSettings, kept_rows, labelled_rows, shared_rows
from fedray.data.manifest import Manifest
from fedray.data.partition import PartitionSettings, partition, split_by_speakers


@dataclass(frozen=True)
class ServerDataSettings:
    """What of a corpus' training data is the server's, by speakers, where the corpus itself does not say. All null: nothing."""

    share: float | None = None  # of the speakers
    hours: float | None = None
    utterances: float | None = None  # share of the utterances
    largest: bool = False  # the speakers with most speech (with `utterances`, most of these) instead of a random choice

    def given(self) -> list[str]:
        return [name for name in ("share", "hours", "utterances") if getattr(self, name) is not None]


@dataclass(frozen=True)
class DataSettings:
    corpus: str = "embedded"
    root: str | None = None  # the corpus' folder
    seed: int = 0  # of what is drawn in making or dividing the corpus, apart from the seed of the run
    options: dict[str, Any] = field(default_factory=dict)  # the corpus' own settings
    server: ServerDataSettings = field(default_factory=ServerDataSettings)
    clients: PartitionSettings = field(default_factory=PartitionSettings)
    labelled: LabelledSettings = field(default_factory=LabelledSettings)  # of the clients' training data
    corruption: CorruptionSettings = field(default_factory=CorruptionSettings)  # of the same
    dev_share: float | None = None  # of the training speakers, where the corpus has no development set
    test_share: float | None = None  # the same for a test set
    skip_broken: bool = False  # leave out audio that cannot be read, counted, instead of ending with an error

    def __post_init__(self) -> None:
        if self.clients.by == "pooled" and self.corruption.clients < 1:
            raise ValueError("data.corruption.clients hits a share of the clients, and data.clients.by=pooled makes one of all: remove it")
        if self.clients.by == "pooled" and self.labelled.clients > 0:
            raise ValueError(
                "data.labelled.clients labels a share of the clients, and data.clients.by=pooled makes one of all: "
                "set data.labelled.utterances instead"
            )


class SpeechData:
    """The federation; see fedray.core.types.FederatedData. Holds manifests and feature stores, no audio."""

    def __init__(
        self,
        clients: Utterances,
        rows: Mapping[str, np.ndarray],
        splits: Mapping[str, Utterances],
        server: Utterances | None,
        by_label: bool = False,
    ) -> None:
        """`rows`: client id -> positions in `clients`; `by_label`: clients are named after labels."""
        self._clients, self._splits, self._server, self._by_label = clients, dict(splits), server, by_label
        # One array for all: what is sent to every actor then has a handful of objects, however many clients there are.
        self._ids = list(rows)
        self._members = np.concatenate([*rows.values(), np.empty(0, np.int64)], dtype=np.int64)
        self._offsets = np.cumsum([0, *map(len, rows.values())], dtype=np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_places"}

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {client: place for place, client in enumerate(self._ids)}

    def client_ids(self) -> Sequence[str]:
        return self._ids

    def cost(self, client: str) -> float:
        place = self._places[client]
        return int(self._offsets[place + 1] - self._offsets[place])

    def load(self, client: str) -> Utterances:
        place = self._places[client]
        return self._clients.take(self._members[self._offsets[place] : self._offsets[place + 1]])

    def server(self) -> Utterances | None:
        return self._server

    def splits(self) -> Sequence[str]:
        return list(self._splits)

    def evaluation(self, split: str, index: int = 0, count: int = 1) -> Utterances:
        return shard(self._splits[split], index, count)

    def own(self, client: str, split: str) -> Utterances | None:
        """The client's part of a split, where clients are labels; None where all clients share it."""
        if not self._by_label:
            return None
        whole = self._splits[split]
        return whole.take(np.array([place for place, label in enumerate(whole.labels) if label == client], np.int64))

    def fingerprint(self, part: str = "all") -> str:
        """Changes with the data of a part: "server", "clients" or "all"."""
        sets: dict[str, Utterances | None] = {"clients": self._clients, "server": self._server, **self._splits}
        chosen = sets if part == "all" else {part: sets[part]}
        described: dict[str, Any] = {
            name: None if data is None else [data.manifest.fingerprint(), data.features.name, data.rows.tolist()]
            for name, data in chosen.items()
        }
        if part != "server":
            described["partition"] = [self._ids, self._members.tolist(), self._offsets.tolist()]
            if self._clients.labelled is not None:
                described["labelled"] = np.flatnonzero(self._clients.labelled).tolist()
        return key(described)

    def training(self) -> list[Utterances]:
        """All that is trained on: the server's data, where it has some, and what the clients have together."""
        clients = self._clients.take(self._members)
        return [clients] if self._server is None else [self._server, clients]

    def transcripts(self) -> list[str]:
        """What tokens and language models are learnt from: the server's transcripts, or the clients' where it has none."""
        source = self._server if self._server is not None else self._clients
        return [text for text in source.texts if text]


def divide(splits: Mapping[str, Manifest], settings: DataSettings) -> tuple[Manifest | None, Manifest, dict[str, Manifest]]:
    """(the server's, the clients', the splits to score) from a corpus' splits."""
    splits = dict(splits)
    if "clients" in splits:
        given = [name for name in ("dev_share", "test_share") if getattr(settings, name) is not None]
        given += ["server." + name for name in settings.server.given()]
        if given:
            raise ValueError(
                f"data.{given[0]} has no effect: this corpus says itself what the server's and the clients' data are; remove it"
            )
        server, clients = splits.pop("server", None), splits.pop("clients")
    elif "train" in splits:
        server, clients = None, splits.pop("train")
        for split, held in (("test", settings.test_share), ("dev", settings.dev_share)):
            if held is not None and split not in splits:
                scored, rest = split_by_speakers(clients, seed=settings.seed, share=held)
                splits[split], clients = clients.take(scored), clients.take(rest)
        if settings.server.given():
            mine, theirs = split_by_speakers(clients, seed=settings.seed, **asdict(settings.server))
            server, clients = clients.take(mine), clients.take(theirs)
    else:
        raise ValueError(f"the corpus has the splits {', '.join(splits)}, but neither train nor clients: see data.options")
    return server, clients, splits


def pooled(clients: Utterances, server: Utterances) -> Utterances:
    """What all have together, the server's utterances labelled; features are read from the two stores as they are."""
    theirs = np.zeros(len(clients), bool) if clients.labelled is None else clients.labelled
    return Utterances(
        Manifest.concat([clients.manifest, server.manifest]),
        JoinedFeatures(clients.features, server.features),
        np.concatenate([clients.rows, len(clients.manifest) + server.rows]),
        np.concatenate([theirs, np.ones(len(server), bool)]),
    )


def federate(
    splits: Mapping[str, Manifest],
    settings: DataSettings,
    features: FeatureSettings,
    cache: Path,
    parallel: Parallel,
    check: Callable[[int], None] = lambda population: None,
    target: str = "text",
) -> tuple[SpeechData, dict[str, str]]:
    """The federation of a corpus' splits, and what was broken and left out (utterance -> why; only with `skip_broken`).

    `check` may refuse the number of clients: it is asked before features are made, and again when broken audio is left out.
    """
    server, clients, scored = divide(splits, settings)
    rows = partition(clients, settings.clients, settings.seed, shared_rows(clients, settings.labelled, settings.seed))
    check(len(rows))
    broken: dict[str, str] = {}

    def stored(manifest: Manifest, corruption: CorruptionSettings | None = None) -> FeatureStore:
        store = build_features(manifest, features, cache, parallel, corruption, settings.seed, rows, settings.skip_broken)
        broken.update(store.broken)
        return store

    def whole(manifest: Manifest | None) -> Utterances | None:
        if manifest is None:
            return None
        store = stored(manifest)
        return Utterances(manifest, store, np.flatnonzero(store.frames > 0))

    store = stored(clients, settings.corruption)
    sound = store.frames > 0
    wrong = corrupt_labels(clients, settings.corruption, settings.seed, target, rows).manifest
    kept = {client: mine[sound[mine]] for client, mine in rows.items() if sound[mine].any()}  # skip_broken may leave a client nothing
    if not kept:
        raise ValueError("no client has audio that can be read: is data.root the right folder?")
    labelled = labelled_rows(clients, kept, settings.labelled, settings.seed)
    kept = kept_rows(clients, kept, labelled, settings.labelled, settings.seed)
    check(len(kept))
    scored_utterances = {name: data for name, manifest in scored.items() if (data := whole(manifest)) is not None}
    # Every row that is sound stays in place: clients point at rows of their manifest.
    place = np.cumsum(sound) - 1
    members = {client: place[mine] for client, mine in kept.items()}
    everyone = Utterances(wrong, store, np.flatnonzero(sound), None if labelled is None else labelled[sound])
    own = whole(server)
    if settings.clients.by == "pooled" and own is not None:
        everyone = pooled(everyone, own)
        members = {client: np.arange(len(everyone)) for client in members}
    return SpeechData(everyone, members, scored_utterances, own, settings.clients.by == "label"), broken
