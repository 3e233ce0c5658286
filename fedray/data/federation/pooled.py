"""The data of clients and server in one place, for central training; utterances of two stores as one list."""

from __future__ import annotations

import numpy as np

from fedray.data.features.dataset import Utterances
from fedray.data.features.joined import JoinedFeatures
from fedray.data.manifest import Manifest, Mask


def pooled(clients: Utterances, server: Utterances) -> Utterances:
    """The clients' utterances followed by the server's, which are labelled. No feature is computed again."""
    labelled = np.zeros(len(clients), bool) if clients.labelled is None else clients.labelled
    return joined(clients, server, np.concatenate([labelled, np.ones(len(server), bool)]))


def joined(first: Utterances, second: Utterances, labelled: Mask | None) -> Utterances:
    """The first utterances followed by the second ones."""
    return Utterances(
        Manifest.concat([first.manifest, second.manifest]),
        JoinedFeatures(first.features, second.features),
        np.concatenate([first.rows, len(first.manifest) + second.rows]),
        labelled,
    )
