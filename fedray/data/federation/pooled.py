"""The data of clients and server in one place, for central training."""

from __future__ import annotations

import numpy as np

from fedray.data.features.dataset import Utterances
from fedray.data.features.joined import JoinedFeatures
from fedray.data.manifest import Manifest


def pooled(clients: Utterances, server: Utterances) -> Utterances:
    """The clients' utterances followed by the server's, which are labelled. No feature is computed again."""
    labelled = np.zeros(len(clients), bool) if clients.labelled is None else clients.labelled
    return Utterances(
        Manifest.concat([clients.manifest, server.manifest]),
        JoinedFeatures(clients.features, server.features),
        np.concatenate([clients.rows, len(clients.manifest) + server.rows]),
        np.concatenate([labelled, np.ones(len(server), bool)]),
    )
