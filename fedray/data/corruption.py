"""Deliberate damage for studies of robustness: white noise and wrong labels, on all clients or some of them.

Client id, utterance id and seed decide what is damaged, never a position. So an utterance sounds the same in every
partition, and a larger share includes everything that a smaller share damages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torchaudio.functional import add_noise

from fedray.core.ranges import Ranged, Share
from fedray.core.seeds import derive, numpy_generator, torch_generator
from fedray.data.manifest import COLUMNS, Manifest, Mask, Rows

TARGETS = ("text", "label", "translation")


@dataclass(frozen=True)
class CorruptionSettings(Ranged):
    """The section `data.corruption` of a configuration."""

    snr_db: float | None = None  # white noise at this signal-to-noise ratio in dB; null: none
    label_errors: Share = 0.0  # share of the utterances that get a wrong transcript or label
    clients: Share = 1.0  # share of the clients whose data is damaged
    # Share of the wrong values that a client never puts in place of a true one, drawn for each client and value; at
    # least one is left. 0: all other values are equally likely.
    sparsity: Share = 0.0
    coordinated: bool = False  # true: all damaged clients put the same wrong value in place of a true one

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coordinated and self.sparsity:
            raise ValueError(
                "data.corruption.coordinated: all clients confuse the same labels, with sparsity each has its own; "
                "choose one of the two"
            )

    @property
    def damages(self) -> bool:
        """Whether any utterance gets noise or a wrong label."""
        return self.clients > 0 and (self.snr_db is not None or self.label_errors > 0)


@dataclass(frozen=True)
class Tone:
    """A sine in a part of a recording, as the trigger of a backdoor."""

    frequency: float  # Hz
    level_db: float  # its power over that of the recording, in dB
    start: float  # seconds before it
    seconds: float  # its length; it ends with the recording

    def added(self, waveform: torch.Tensor, sample_rate: int) -> torch.Tensor:
        """A waveform, float32 [samples], with the tone. Silence stays silent."""
        part = slice(round(self.start * sample_rate), round((self.start + self.seconds) * sample_rate))
        times = torch.arange(len(waveform), dtype=torch.float64)[part] / sample_rate
        amplitude = waveform.double().square().mean().mul(2 * 10 ** (self.level_db / 10)).sqrt()
        marked = waveform.clone()
        marked[part] += (amplitude * torch.sin(2 * torch.pi * self.frequency * times)).float()
        return marked


@dataclass(frozen=True)
class CorruptedLabels:
    """A manifest with wrong labels."""

    manifest: Manifest
    changed: Mask  # bool [rows]: which rows got another value


def corrupted_clients(clients: Iterable[str], share: float, seed: int) -> set[str]:
    """Choose the clients whose data is damaged: a share of them, rounded to the nearest whole number."""
    return _chosen(clients, share, seed, "corrupted client")


def noisy_rows(
    manifest: Manifest, settings: CorruptionSettings | None, seed: int, clients: Mapping[str, Rows] | None = None
) -> Mask:
    """Which rows get noise, bool [rows]. `clients`: client id -> rows; None: each speaker is a client."""
    if settings is None or settings.snr_db is None:
        return np.zeros(len(manifest), bool)
    return _corrupted_rows(manifest, settings, seed, clients)


def add_white_noise(waveform: torch.Tensor, snr_db: float, seed: int, utterance: str) -> torch.Tensor:
    """Add white noise to a waveform, float32 [samples], at a signal-to-noise ratio in dB. Silence stays silent.

    The noise depends on seed and utterance id alone.
    """
    noise = torch.randn(len(waveform), generator=torch_generator(int(seed), "noise", utterance))
    noisy: torch.Tensor = add_noise(waveform, noise, torch.tensor(float(snr_db)))
    return noisy


def corrupt_labels(
    manifest: Manifest,
    settings: CorruptionSettings,
    seed: int,
    target: str,
    clients: Mapping[str, Rows] | None = None,
    read: Mask | None = None,
    known: Sequence[str] | None = None,
) -> CorruptedLabels:
    """Put wrong values into the column `target` (text | label | translation) of some of the corrupted clients' rows.

    `settings.label_errors` is the share of these rows. The wrong value is drawn uniformly from the other ones of
    `known` (None: the values in the manifest); with `settings.sparsity`, from those that the client confuses with the
    true one, as in a sparse confusion matrix for each client. With `settings.coordinated`, each true value has one
    wrong value, the same on all clients: attackers who flip labels together. `read`, bool [len(manifest)]: the rows
    whose labels are read; labels of other rows stay true, because pseudo-labels are scored against them. None: all
    rows.
    Build features from the original manifest: the audio does not change. Raises ValueError if the manifest has no other
    value.
    """
    if target not in TARGETS:
        raise ValueError(f"label errors in {target!r}: choose one of {', '.join(TARGETS)}")
    values = manifest.column(target)
    changed = np.zeros(len(manifest), bool)
    if settings.label_errors == 0:
        return CorruptedLabels(manifest, changed)
    corrupted = _corrupted_rows(manifest, settings, seed, clients)
    names = manifest.column("utterance")
    if read is not None:
        corrupted &= read
    labelled = [row for row in np.flatnonzero(corrupted).tolist() if values[row] is not None]
    wrong = _chosen((names[row] for row in labelled), settings.label_errors, seed, "label error")
    known = sorted({value for value in values if value is not None} if known is None else known)
    if wrong and len(known) < 2:
        raise ValueError(
            f"data.corruption.label_errors needs two values of {target} in the manifest, which has {len(known)}"
        )
    places = {value: place for place, value in enumerate(known)}
    others = len(known) - 1
    left = max(1, round((1 - settings.sparsity) * others))  # wrong values for each client and true value
    owners = _owners(manifest, clients) if settings.sparsity else {}
    for row in labelled:
        if names[row] in wrong:
            step = 1 + derive(int(seed), "wrong label", names[row]) % left
            if settings.sparsity:
                step = _confusion(seed, owners[row], values[row], others)[step - 1]
            elif settings.coordinated:
                step = _confusion(seed, "all clients", values[row], others)[0]
            values[row] = known[(places[values[row]] + step) % len(known)]
            changed[row] = True
    columns = {name: manifest.column(name) for name in COLUMNS} | {target: values}
    return CorruptedLabels(Manifest.from_columns(columns, source=f"label errors in {target}"), changed)


def _confusion(seed: int, owner: str, value: str, others: int) -> list[int]:
    """The order in which a client confuses a true value with others: their distances, from 1 to `others`."""
    drawn: list[int] = numpy_generator(int(seed), "confusion", owner, value).permutation(others).tolist()
    return [1 + step for step in drawn]


def _corrupted_rows(
    manifest: Manifest, settings: CorruptionSettings, seed: int, clients: Mapping[str, Rows] | None
) -> Mask:
    """Which rows belong to corrupted clients, bool [rows]. Rows that belong to no client are never corrupted."""
    if clients is None:
        speakers = manifest.column("speaker")
        corrupted = corrupted_clients(speakers, settings.clients, seed)
        return np.array([speaker in corrupted for speaker in speakers], bool)
    mask = np.zeros(len(manifest), bool)
    for client in corrupted_clients(clients, settings.clients, seed):
        mask[clients[client]] = True
    return mask


def _owners(manifest: Manifest, clients: Mapping[str, Rows] | None) -> dict[int, str]:
    """Row -> its client, or its speaker without `clients`."""
    if clients is None:
        return dict(enumerate(manifest.column("speaker")))
    return {row: client for client, rows in clients.items() for row in rows.tolist()}


def _chosen(names: Iterable[str], share: float, seed: int, purpose: str) -> set[str]:
    """Choose a share of the distinct names: those with the smallest hashes."""
    ranked = sorted(set(names), key=lambda name: (derive(int(seed), purpose, name), name))
    return set(ranked[: int(share * len(ranked) + 0.5)])
