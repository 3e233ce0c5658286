"""Clients with some labelled utterances."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedray.data.features.dataset import Utterances


def labelled_part(data: Utterances) -> Utterances:
    """A client's labelled utterances (`data.labelled`)."""
    assert data.labelled is not None
    return data.take(np.flatnonzero(data.labelled))


def check_labelled(data: Any, kind: str) -> None:
    """Raise ValueError when no setting says which of the clients' utterances are labelled."""
    clients = data.client_ids()
    if len(clients) and data.load(clients[0]).labelled is None:
        raise ValueError(
            f"{kind} needs clients with some labelled utterances: set data.labelled.share or data.labelled.utterances"
        )
