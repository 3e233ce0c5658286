"""Which of the clients' utterances are labelled, for studies of how much an algorithm gains from labels.

Names and the seed decide, never positions. A larger share includes all utterances that a smaller share labels.
`at_least` is the exception: it labels further utterances if the share gives too few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from fedray.core.ranges import Natural, Ranged, Share
from fedray.core.seeds import numpy_generator
from fedray.data.manifest import Manifest, Mask, Rows

Clients = dict[str, Rows]


@dataclass(frozen=True)
class LabelledSettings(Ranged):
    """Which of the clients' utterances are labelled.

    Shares are from 0 to 1; counts are rounded to the nearest whole number. With the defaults no utterance is marked as
    labelled or unlabelled, and an algorithm that creates pseudo-labels creates them for all. `share` is FedSTAR's L. It
    is drawn before the partition, so `data.clients.by: uneven` deals labelled and unlabelled utterances separately.
    """

    clients: Share = 0.0  # share of the clients whose utterances are all labelled
    utterances: Share = 0.0  # share of each client's utterances that are labelled
    # Share of all clients' utterances that are labelled, drawn for each label; at least one of each label.
    share: Share = 0.0
    at_least: Natural = 0  # least number of labelled utterances of each client, if it has that many
    # Share of each client's unlabelled utterances that it keeps (FedSTAR's U); the others are dropped.
    unlabelled: Share = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unlabelled < 1 and not self.given:
            raise ValueError(
                "data.labelled.unlabelled: no setting says which utterances are labelled: "
                "set data.labelled.share or data.labelled.utterances"
            )

    @property
    def given(self) -> bool:
        """Whether any setting says which utterances are labelled."""
        return max(self.clients, self.utterances, self.share, self.at_least) > 0


def shared_rows(manifest: Manifest, settings: LabelledSettings, seed: int) -> Mask | None:
    """Which utterances `share` labels, bool [rows], drawn before the partition in proportion to the labels.

    None without a share. Utterances without a label are drawn as one further label.
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


def labelled_rows(
    manifest: Manifest, clients: Mapping[str, Rows], settings: LabelledSettings, seed: int
) -> Mask | None:
    """Which rows are labelled, bool [rows]; None if the settings do not say. `clients`: client id -> its rows.

    Rows that belong to no client are unlabelled.
    """
    if not settings.given:
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
    for place in numpy_generator(seed, "labelled", "clients").permutation(len(names))[
        : round(settings.clients * len(names))
    ]:
        mask[clients[names[place]]] = True
    return mask


def kept_rows(
    manifest: Manifest, clients: Mapping[str, Rows], labelled: Mask | None, settings: LabelledSettings, seed: int
) -> Clients:
    """Drop unlabelled rows of the clients until the share `settings.unlabelled` of them is left.

    A client without any rows left is removed.
    """
    if settings.unlabelled == 1 or labelled is None:
        return dict(clients)
    rank = np.argsort(pc.sort_indices(manifest.table["utterance"]).to_numpy())
    found = {}
    for client, rows in clients.items():
        unlabelled = rows[~labelled[rows]]
        drawn = numpy_generator(seed, "labelled", "unlabelled", client).permutation(
            unlabelled[np.argsort(rank[unlabelled])]
        )
        kept = np.sort(np.concatenate([rows[labelled[rows]], drawn[: round(settings.unlabelled * len(unlabelled))]]))
        if len(kept):
            found[client] = kept
    return found
