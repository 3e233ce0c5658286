"""Hold out some of each client's utterances as its test set: the split "own"."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from fedray.core.seeds import numpy_generator
from fedray.data.manifest import Manifest, Rows


def hold_out(
    manifest: Manifest, clients: Mapping[str, Rows], share: float, seed: int
) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Return (the clients' rows for training, the rows that they hold out), ascending.

    A client holds out a share of its rows, rounded: at least one if it has two or more, and never all. Names and the
    seed decide, never positions.
    """
    if share == 0:
        return dict(clients), {}
    rank = np.argsort(pc.sort_indices(manifest.table["utterance"]).to_numpy())
    training, held = {}, {}
    for client, rows in clients.items():
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        drawn = numpy_generator(seed, "held out", client).permutation(rows[np.argsort(rank[rows])])
        held[client], training[client] = np.sort(drawn[:count]), np.sort(drawn[count:])
    return training, held
