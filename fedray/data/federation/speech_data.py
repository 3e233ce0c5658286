"""Divide a corpus into a federation: the data of the clients, of the server, and of the splits that are scored."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedray.core.parallel import Parallel
from fedray.core.types import OWN
from fedray.data.corruption import CorruptionSettings, corrupt_labels
from fedray.data.features.dataset import Utterances, shard
from fedray.data.features.settings import FeatureSettings
from fedray.data.features.store import FeatureStore, build_features
from fedray.data.federation.groups import majority
from fedray.data.federation.held_out import hold_out
from fedray.data.federation.labelled import kept_rows, labelled_rows, shared_rows
from fedray.data.federation.partition import partition, split_by_speakers
from fedray.data.federation.pooled import pooled
from fedray.data.federation.settings import DataSettings
from fedray.data.manifest import Manifest, Rows
from fedray.data.text.tokenisers import read_sentences
from fedray.storage.cache import key


class NoSpeakers(UserWarning):
    """A random split of a corpus that names no speakers: nothing keeps a person out of two parts."""


class SpeechData:
    """The federation of a corpus: a fedray.core.types.FederatedData.

    It holds manifests and feature stores, no audio.
    """

    groups: Mapping[str, str] = {}  # speaker -> group, from `data.groups`; {}: there are no groups
    rules: Sequence[str] = ()  # the names of the normalisations of its texts; none: the corpus' own texts

    def __init__(
        self,
        clients: Utterances,
        rows: Mapping[str, Rows],
        splits: Mapping[str, Utterances],
        server: Utterances | None,
        by_label: bool = False,
        text: str | None = None,
        own: Mapping[str, Rows] | None = None,
    ) -> None:
        """`rows`: client id -> positions in `clients`; `own`: those held out. `text`: the file of `data.text`.

        `by_label`: each client is named after a label.
        """
        self._text = text
        if own:
            parts = [own[client] for client in rows]
            self._held = Utterances(clients.manifest, clients.features, clients.rows[np.concatenate(parts)])
            splits = {**splits, OWN: self._held}
            self._own_offsets: Rows = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        self._clients, self._splits, self._server, self._by_label = clients, dict(splits), server, by_label
        # One array for all clients: every actor gets a few objects, however many clients there are.
        self._ids = list(rows)
        self._members: Rows = np.concatenate([*rows.values(), np.empty(0, np.int64)], dtype=np.int64)
        self._offsets: Rows = np.cumsum([0, *map(len, rows.values())], dtype=np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_places"}

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {client: place for place, client in enumerate(self._ids)}

    def client_ids(self) -> Sequence[str]:
        """The ids of all clients, in order."""
        return self._ids

    def cost(self, client: str) -> float:
        """The number of the client's utterances."""
        place = self._places[client]
        return int(self._offsets[place + 1] - self._offsets[place])

    def load(self, client: str) -> Utterances:
        """The training utterances of a client."""
        place = self._places[client]
        return self._clients.take(self._members[self._offsets[place] : self._offsets[place + 1]])

    def client_groups(self) -> dict[str, str]:
        """Client -> the group of most of its utterances."""
        return {client: majority(self.load(client).speakers, self.groups) for client in self.client_ids()}

    def server(self) -> Utterances | None:
        """The server's training utterances; None without any."""
        return self._server

    def splits(self) -> Sequence[str]:
        """The names of the splits that can be scored."""
        return list(self._splits)

    def evaluation(self, split: str, index: int = 0, count: int = 1) -> Utterances:
        """Part `index` of `count` of a split."""
        return shard(self._splits[split], index, count)

    def client_part(self, client: str, split: str) -> Utterances | None:
        """Of the split "own", what the client holds out. Of others, what has its label, or None unless `by_label`."""
        if split == OWN:
            place = self._places[client]
            return self._held.take(np.arange(*self._own_offsets[place : place + 2]))
        if not self._by_label:
            return None
        whole = self._splits[split]
        return whole.take(np.array([place for place, label in enumerate(whole.labels) if label == client], np.int64))

    def fingerprint(self, part: str = "all", copied: bool = False) -> str:
        """A name for the contents of a part, "server", "clients" or "all". Different data gets a different name.

        `copied`: a copy of all files elsewhere gets the same name.
        """
        sets: dict[str, Utterances | None] = {"clients": self._clients, "server": self._server, **self._splits}
        chosen = sets if part == "all" else {part: sets[part]}
        described: dict[str, Any] = {
            name: None if data is None else [data.manifest.fingerprint(copied), data.rows.tolist()]
            for name, data in chosen.items()
        }
        if not copied:  # names of features contain fingerprints
            described["features"] = [None if data is None else data.features.name for data in chosen.values()]
        if self._text is not None:
            described["text"] = self.transcripts()
        if self.groups and part != "server":
            described["groups"] = dict(self.groups)
        if part != "server":
            described["partition"] = [self._ids, self._members.tolist(), self._offsets.tolist()]
            if self._clients.labelled is not None:
                described["labelled"] = np.flatnonzero(self._clients.labelled).tolist()
        return key(described)

    def training(self) -> list[Utterances]:
        """All training data: the server's, if it has some, and that of all clients together."""
        clients = self._clients.take(self._members)
        return [clients] if self._server is None else [self._server, clients]

    def positions(self) -> dict[str, Rows]:
        """Client -> the positions of its utterances in the last part of `training`, which may have others' too."""
        places = ((client, self._places[client]) for client in self._ids)
        return {client: np.arange(self._offsets[place], self._offsets[place + 1]) for client, place in places}

    def transcripts(self, column: str = "text") -> list[str]:
        """The texts for tokenisers and language models: those of `data.text`, else the server's or the clients'."""
        if self._text is not None and column == "text":
            return read_sentences(Path(self._text))
        source = self._server
        if source is None:  # leave out what clients hold out or drop, and what is unlabelled
            members = self._clients.take(np.unique(self._members))
            source = members if members.labelled is None else members.take(members.labelled_positions)
        return [text for text in source.column(column) if text]


def divide(
    splits: Mapping[str, Manifest], settings: DataSettings
) -> tuple[Manifest | None, Manifest, dict[str, Manifest]]:
    """Divide a corpus' splits into (the server's data, the clients' data, the splits to score).

    Raises ValueError if the splits include neither `train` nor `clients`, or `train` with `clients` or `server`, or if
    a setting would divide what the corpus has divided.
    """
    splits = dict(splits)
    if "train" in splits and (beside := [name for name in ("clients", "server") if name in splits]):
        raise ValueError(
            f"the corpus has the splits train and {' and '.join(beside)}: nothing would train on all of them. In "
            "data.options, name the clients' speech clients, not train, or leave out "
            f"{'server and set data.server' if beside == ['server'] else 'train'}"
        )
    if "clients" in splits:
        given = [name for name in ("dev_share", "test_share") if getattr(settings, name) is not None]
        given += ["server." + name for name in settings.server.given()]
        if given:
            keys = [f"data.{name}" for name in given]
            raise ValueError(
                f"{' and '.join(keys)} would have no effect: server and clients of this corpus are divided already. "
                f"Unset it: {' '.join(f'{key}=null' for key in keys)}"
            )
        server, clients = splits.pop("server", None), splits.pop("clients")
    elif "train" in splits:
        server, clients = None, splits.pop("train")
        shares = {"test": settings.test_share, "dev": settings.dev_share}
        drawn = [split for split, held in shares.items() if held is not None and split not in splits]
        if drawn and clients.anonymous:
            warnings.warn(
                f"the corpus names no speakers: {' and '.join(drawn)} are random recordings, and a person may speak "
                "both there and in training. Name the speakers in data.options if anything tells them apart",
                NoSpeakers,
                stacklevel=2,
            )
        for split in drawn:
            scored, rest = split_by_speakers(
                clients, seed=settings.seed, share=shares[split], setting=f"data.{split}_share"
            )
            splits[split], clients = clients.take(scored), clients.take(rest)
        if settings.server.given():
            mine, theirs = split_by_speakers(clients, seed=settings.seed, **asdict(settings.server))
            server, clients = clients.take(mine), clients.take(theirs)
    else:
        raise ValueError(
            f"the corpus has the splits {', '.join(splits)}, but neither train nor clients: name one in data.options"
        )
    return server, clients, splits


def federate(
    splits: Mapping[str, Manifest],
    settings: DataSettings,
    features: FeatureSettings,
    cache: Path,
    parallel: Parallel,
    check: Callable[[int], None] = lambda population: None,
    target: str = "text",
) -> tuple[SpeechData, dict[str, str]]:
    """Make the federation of a corpus' splits. Also returns the broken audio left out: utterance id -> reason.

    Broken audio is an error without `skip_broken`.

    `check` may refuse a number of clients by a ValueError. It is called before features are computed, and again after
    clients without usable audio are dropped. `target`: the column that `data.corruption.label_errors` changes.
    """
    server, clients, scored = divide(splits, settings)
    rows = partition(clients, settings.clients, settings.seed, shared_rows(clients, settings.labelled, settings.seed))
    check(len(rows))
    if settings.own_share and OWN in scored:
        raise ValueError(f"data.own_share makes a split {OWN}, and the corpus has one: rename it, or remove own_share")
    # What is held out is never corrupted.
    rows, held = hold_out(clients, rows, settings.own_share, settings.seed, settings.clients.whole_speakers)
    broken: dict[str, str] = {}

    def stored(manifest: Manifest, corruption: CorruptionSettings | None = None) -> FeatureStore:
        store = build_features(
            manifest, features, cache, parallel, corruption, settings.seed, rows, settings.skip_broken
        )
        broken.update(store.broken)
        return store

    def whole(manifest: Manifest | None) -> Utterances | None:
        if manifest is None:
            return None
        store = stored(manifest)
        return Utterances(manifest, store, np.flatnonzero(store.frames > 0))

    store = stored(clients, settings.corruption)
    sound = store.frames > 0
    # With skip_broken, a client may lose all its utterances.
    kept = {client: mine[sound[mine]] for client, mine in rows.items() if sound[mine].any()}
    if not kept:
        raise ValueError("no client has audio that can be read: is data.root the right folder?")
    labelled = labelled_rows(clients, kept, settings.labelled, settings.seed)
    wrong = corrupt_labels(clients, settings.corruption, settings.seed, target, rows, labelled).manifest
    kept = kept_rows(clients, kept, labelled, settings.labelled, settings.seed)
    check(len(kept))
    scored_utterances = {name: data for name, manifest in scored.items() if (data := whole(manifest)) is not None}
    # `everyone` holds the rows with usable audio alone: positions in it differ from rows of the manifest.
    position = np.cumsum(sound) - 1
    members = {client: position[mine] for client, mine in kept.items()}
    own = {client: position[held[client][sound[held[client]]]] for client in kept} if held else None
    everyone = Utterances(wrong, store, np.flatnonzero(sound), None if labelled is None else labelled[sound])
    of_server = whole(server)
    by = settings.clients.by
    if by == "server":
        if of_server is None:
            raise ValueError("data.clients.by=server trains on the server's speech, and it has none: set data.server")
        everyone, members, own = of_server, dict.fromkeys(members, np.arange(len(of_server))), None
    elif by == "pooled" and of_server is not None:
        whole_server = len(everyone) + np.arange(len(of_server))
        everyone = pooled(everyone, of_server)
        members = {client: np.concatenate([np.sort(mine), whole_server]) for client, mine in members.items()}
    return SpeechData(everyone, members, scored_utterances, of_server, by == "label", settings.text, own), broken
