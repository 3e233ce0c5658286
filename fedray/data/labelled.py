"""Which of the clients' utterances are labelled, for studies of how much an algorithm gains from them.

Drawn by names and the seed, never by position, and nested: a larger share labels all that a smaller one did, and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from fedray.core.seeds import numpy_generator
from fedray.data.manifest import Manifest


@dataclass(frozen=True)
class LabelledSettings:
    """Shares from 0 to 1, to the nearest whole number. Both 0: nothing is said, and a client that labels its speech labels all."""

    clients: float = 0.0  # share of the clients whose utterances are all labelled
    utterances: float = 0.0  # share of each client's utterances that are labelled

    def __post_init__(self) -> None:
        for name in ("clients", "utterances"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"data.labelled.{name}: {getattr(self, name)} is a share, from 0 to 1")


def labelled_rows(manifest: Manifest, clients: Mapping[str, np.ndarray], settings: LabelledSettings, seed: int) -> np.ndarray | None:
    """bool [rows]: which rows are labelled. `clients`: client id -> its rows; rows of no client are not. None: nothing is said."""
    if settings.clients == settings.utterances == 0:
        return None
    mask = np.zeros(len(manifest), bool)
    rank = np.argsort(pc.sort_indices(manifest.table["utterance"]).to_numpy())
    for client, rows in clients.items():
        drawn = numpy_generator(seed, "labelled", "utterances", client).permutation(rows[np.argsort(rank[rows])])
        mask[drawn[: round(settings.utterances * len(rows))]] = True
    names = sorted(clients)
    for place in numpy_generator(seed, "labelled", "clients").permutation(len(names))[: round(settings.clients * len(names))]:
        mask[clients[names[place]]] = True
    return mask
