"""Hold out some of each client's utterances as its test set: the split "own"."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from fedray.core.seeds import numpy_generator
from fedray.data.manifest import Manifest, Rows


def hold_out(
    manifest: Manifest, clients: Mapping[str, Rows], share: float, seed: int, whole_speakers: bool = False
) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Return (the clients' rows for training, the rows that they hold out), ascending.

    A client holds out a share of its rows, rounded: at least one if it has two or more, and never all. With
    `whole_speakers` it holds out speakers whole until it has so many rows, and keeps one speaker or more. Names and the
    seed decide, never positions.
    """
    if share == 0:
        return dict(clients), {}
    rank = np.argsort(pc.sort_indices(manifest.table["utterance"]).to_numpy())
    speakers = np.array(manifest.column("speaker")) if whole_speakers else rank
    training, held = {}, {}
    for client, rows in clients.items():
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        generator = numpy_generator(seed, "held out", client)
        if whole_speakers:
            names, code, sizes = np.unique(speakers[rows], return_inverse=True, return_counts=True)
            order = generator.permutation(len(names))
            enough = int(np.searchsorted(np.cumsum(sizes[order]), count)) + 1  # speakers
            taken = rows[np.isin(code, order[: min(enough, len(names) - 1)])]
        else:
            taken = generator.permutation(rows[np.argsort(rank[rows])])[:count]
        held[client], training[client] = np.sort(taken), np.setdiff1d(rows, taken)
    return training, held
