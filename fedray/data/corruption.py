"""Damage done on purpose, for studies of robustness: white noise on the audio and wrong labels, on all clients or on a share of them.

Who is hit follows from names (client, utterance) and the seed, never from a position: the same utterance sounds the same in every
partition, and a larger share hits all that a smaller one hit, and more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torchaudio.functional import add_noise

from fedray.core.seeds import derive, torch_generator
from fedray.data.manifest import COLUMNS, Manifest

TARGETS = ("text", "label", "translation")


@dataclass(frozen=True)
class CorruptionSettings:
    snr_db: float | None = None  # white noise at this signal-to-noise ratio in dB; null: none
    label_errors: float = 0.0  # share of the utterances that get another's transcript or another label
    clients: float = 1.0  # share of the clients that is hit

    def __post_init__(self) -> None:
        for name in ("label_errors", "clients"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"data.corruption.{name}: {getattr(self, name)} is a share, from 0 to 1")


@dataclass(frozen=True)
class CorruptedLabels:
    manifest: Manifest
    changed: np.ndarray  # bool [rows]


def hit_clients(clients: Iterable[str], share: float, seed: int) -> set[str]:
    """The share of the clients (to the nearest whole number) that is hit."""
    return _chosen(clients, share, seed, "corrupted client")


def noisy_rows(
    manifest: Manifest, settings: CorruptionSettings | None, seed: int, clients: Mapping[str, np.ndarray] | None = None
) -> np.ndarray:
    """bool [rows]: which rows get noise. `clients`: client id -> rows; None: each speaker is a client."""
    if settings is None or settings.snr_db is None:
        return np.zeros(len(manifest), bool)
    return _hit_rows(manifest, settings, seed, clients)


def add_white_noise(waveform: torch.Tensor, snr_db: float, seed: int, utterance: str) -> torch.Tensor:
    """float32 [samples] with white noise at a signal-to-noise ratio in dB, drawn by (seed, utterance id); silence stays silent."""
    noise = torch.randn(len(waveform), generator=torch_generator(int(seed), "noise", utterance))
    return add_noise(waveform, noise, torch.tensor(float(snr_db)))


def corrupt_labels(
    manifest: Manifest,
    settings: CorruptionSettings,
    seed: int,
    target: str,
    clients: Mapping[str, np.ndarray] | None = None,
) -> CorruptedLabels:
    """Give a share of the hit clients' utterances another value of the column `target` (text | label | translation), never their own.

    The value is drawn evenly from the other values in the manifest. Build the features from the manifest as it was: the audio is the same.
    """
    if target not in TARGETS:
        raise ValueError(f"label errors in {target!r}: choose one of {', '.join(TARGETS)}")
    values = manifest.column(target)
    changed = np.zeros(len(manifest), bool)
    if settings.label_errors == 0:
        return CorruptedLabels(manifest, changed)
    hit = _hit_rows(manifest, settings, seed, clients)
    names = manifest.column("utterance")
    labelled = [row for row in np.flatnonzero(hit).tolist() if values[row] is not None]
    wrong = _chosen((names[row] for row in labelled), settings.label_errors, seed, "label error")
    known = sorted({value for value in values if value is not None})
    if wrong and len(known) < 2:
        raise ValueError(
            f"data.corruption.label_errors: the manifest holds {len(known)} distinct {target}, so no utterance can get another"
        )
    places = {value: place for place, value in enumerate(known)}
    for row in labelled:
        if names[row] in wrong:
            step = 1 + derive(int(seed), "wrong label", names[row]) % (len(known) - 1)
            values[row] = known[(places[values[row]] + step) % len(known)]
            changed[row] = True
    columns = {name: manifest.column(name) for name in COLUMNS} | {target: values}
    return CorruptedLabels(Manifest.from_columns(columns, source=f"label errors in {target}"), changed)


def _hit_rows(manifest: Manifest, settings: CorruptionSettings, seed: int, clients: Mapping[str, np.ndarray] | None) -> np.ndarray:
    """bool [rows]: the rows of the clients that are hit; rows of no client are never hit."""
    if clients is None:
        speakers = manifest.column("speaker")
        hit = hit_clients(speakers, settings.clients, seed)
        return np.array([speaker in hit for speaker in speakers], bool)
    mask = np.zeros(len(manifest), bool)
    for client in hit_clients(clients, settings.clients, seed):
        mask[clients[client]] = True
    return mask


def _chosen(names: Iterable[str], share: float, seed: int, purpose: str) -> set[str]:
    """The share of the distinct names whose hashes are smallest."""
    ranked = sorted(set(names), key=lambda name: (derive(int(seed), purpose, name), name))
    return set(ranked[: int(share * len(ranked) + 0.5)])
