"""Assign utterances to clients from settings and names alone: no audio is read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedray.data.federation.held_out import hold_out
from fedray.data.federation.labelled import kept_rows, labelled_rows, shared_rows
from fedray.data.federation.partition import partition
from fedray.data.federation.settings import DataSettings
from fedray.data.manifest import Manifest, Mask, Rows


class Dealt(NamedTuple):
    """Which utterances each client has."""

    clients: dict[str, Rows]  # client -> its rows for training
    own: Manifest | None  # utterances that the clients hold out; None without `own_share`
    labelled: Mask | None  # bool [rows]; None if no setting says which are labelled


def deal(manifest: Manifest, settings: DataSettings) -> Dealt:
    """Deal the clients' utterances. Raises ValueError if the settings do not fit them."""
    shared = shared_rows(manifest, settings.labelled, settings.seed)
    clients = partition(manifest, settings.clients, settings.seed, shared)
    clients, held = hold_out(manifest, clients, settings.own_share, settings.seed, settings.clients.whole_speakers)
    labelled = labelled_rows(manifest, clients, settings.labelled, settings.seed)
    clients = kept_rows(manifest, clients, labelled, settings.labelled, settings.seed)
    own = manifest.take(np.sort(np.concatenate(list(held.values())))) if held else None
    return Dealt(clients, own, labelled)
