"""Which of the clients' utterances are labelled, for studies of how much an algorithm gains from them.

Drawn by names and the seed, never by position, and nested: a larger share labels all that a smaller one did, and more (but for
`at_least`, which adds others where the share is too small).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from fedray.core.seeds import numpy_generator
from fedray.data.manifest import Manifest

Clients = dict[str, np.ndarray]


@dataclass(frozen=True)
class LabelledSettings:
    """Shares from 0 to 1, to the nearest whole number. As by default nothing is said, and a client that labels its speech labels all.

    `share` is FedSTAR's L: drawn before the utterances are dealt, so that a division `by: uneven` deals both parts for themselves.
    """

    clients: float = 0.0  # share of the clients whose utterances are all labelled
    utterances: float = 0.0  # share of each client's utterances that are labelled
    share: float = 0.0  # share of everybody's utterances together, label by label; of each label at least one
    at_least: int = 0  # of each client's utterances, where it has so many
    unlabelled: float = 1.0  # share of each client's unlabelled utterances that it keeps (FedSTAR's U); nobody has the others

    def __post_init__(self) -> None:
        for name in ("clients", "utterances", "share", "unlabelled"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"data.labelled.{name}: {getattr(self, name)} is a share, from 0 to 1")
        if self.at_least < 0:
            raise ValueError(f"data.labelled.at_least: {self.at_least} must not be below 0")
        if self.unlabelled < 1 and not self.said:
            raise ValueError("data.labelled.unlabelled: nothing is said of what is labelled: set data.labelled.share or utterances")

    @property
    def said(self) -> bool:
        """Whether anything is said of labels."""
        return max(self.clients, self.utterances, self.share, self.at_least) > 0


def shared_rows(manifest: Manifest, settings: LabelledSettings, seed: int) -> np.ndarray | None:
    """bool [rows]: the `share` that is labelled whoever has it, in the proportions of the labels; None without a share.

    Utterances without a label are drawn from as if that were one.
    """
    if settings.share == 0:
        return None
    mask = np.zeros(len(manifest), bool)
    order = pc.sort_indices(manifest.table["utterance"]).to_numpy()
    labels = np.asarray(pc.fill_null(manifest.table["label"], "").to_pylist(), dtype=object)[order]
    for label in sorted(set(labels)):
        rows = order[labels == label]
        drawn = numpy_generator(seed, "labelled", "share", label).permutation(rows)
        mask[drawn[: max(1, round(settings.share * len(rows)))]] = True
    return mask


def labelled_rows(manifest: Manifest, clients: Mapping[str, np.ndarray], settings: LabelledSettings, seed: int) -> np.ndarray | None:
    """bool [rows]: which rows are labelled. `clients`: client id -> its rows; rows of no client are not. None: nothing is said."""
    if not settings.said:
        return None
    mask = np.zeros(len(manifest), bool)
    shared = shared_rows(manifest, settings, seed)
    rank = np.argsort(pc.sort_indices(manifest.table["utterance"]).to_numpy())
    for client, rows in clients.items():
        if shared is not None:
            mask[rows] = shared[rows]
        drawn = numpy_generator(seed, "labelled", "utterances", client).permutation(rows[np.argsort(rank[rows])])
        mask[drawn[: round(settings.utterances * len(rows))]] = True
        more = drawn[~mask[drawn]]
        mask[more[: max(0, settings.at_least - int(mask[drawn].sum()))]] = True
    names = sorted(clients)
    for place in numpy_generator(seed, "labelled", "clients").permutation(len(names))[: round(settings.clients * len(names))]:
        mask[clients[names[place]]] = True
    return mask


def kept_rows(
    manifest: Manifest, clients: Mapping[str, np.ndarray], labelled: np.ndarray | None, settings: LabelledSettings, seed: int
) -> Clients:
    """The clients' rows without the unlabelled ones that nobody is to have; a client that is left with none is left out."""
    if settings.unlabelled == 1 or labelled is None:
        return dict(clients)
    rank = np.argsort(pc.sort_indices(manifest.table["utterance"]).to_numpy())
    found = {}
    for client, rows in clients.items():
        unlabelled = rows[~labelled[rows]]
        drawn = numpy_generator(seed, "labelled", "unlabelled", client).permutation(unlabelled[np.argsort(rank[unlabelled])])
        kept = np.sort(np.concatenate([rows[labelled[rows]], drawn[: round(settings.unlabelled * len(unlabelled))]]))
        if len(kept):
            found[client] = kept
    return found
