"""The federation of an attack by data: what attackers train on, and for a backdoor the split that measures it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedray.core.attackers import Backdoor, Poisoning
from fedray.core.parallel import Parallel
from fedray.core.seeds import derive
from fedray.data.corruption import CorruptionSettings, Tone, corrupt_labels
from fedray.data.features.dataset import Utterances
from fedray.data.features.settings import FeatureSettings
from fedray.data.features.store import build_features
from fedray.data.federation.pooled import joined
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import COLUMNS, Manifest, Rows
from fedray.storage.cache import key

SPLIT = "backdoor"


class PoisonedSpeech(SpeechData):
    """The federation `data` with attackers: a fedray.core.types.PoisonedData."""

    def __init__(self, data: SpeechData, attackers: Sequence[str]) -> None:
        vars(self).update(data.__getstate__())
        self.attackers = list(attackers)
        self._other: Utterances = self._clients  # what attackers train on
        self._others: dict[str, Rows] = {client: self._positions(client) for client in attackers}  # positions in it

    def poisoned(self, client: str) -> Utterances:
        """What an attacker trains on while it attacks."""
        return self._other.take(self._others[client])

    def fingerprint(self, part: str = "all", copied: bool = False) -> str:
        whole = super().fingerprint(part, copied)
        return whole if part == "server" else key({"data": whole, "attackers": self.attackers})

    def flip(self, target: str, seed: int) -> None:
        """Give all utterances of attackers another value of `target`; equal values get equal ones on all of them."""
        flips = CorruptionSettings(label_errors=1.0, coordinated=True)
        rows = {client: self._clients.rows[self._others[client]] for client in self.attackers}
        known = self.training()[-1].distinct(target)  # labels that nobody trains on are no classes
        wrong = corrupt_labels(self._clients.manifest, flips, seed, target, rows, known=known).manifest
        self._other = Utterances(wrong, self._clients.features, self._clients.rows, self._clients.labelled)

    def mark(self, settings: Backdoor, target: str, seed: int, features: FeatureSettings, cache: Path,
             parallel: Parallel) -> None:  # fmt: skip
        """Put the tone and the target into a share of each attacker's utterances, and add the split `backdoor`."""

        def marked(clean: Utterances) -> Utterances:
            columns = {name: clean.column(name) for name in COLUMNS} | {target: [settings.target] * len(clean)}
            manifest = Manifest.from_columns(columns, source="attack.kind=backdoor")
            tone = Tone(settings.frequency, settings.level_db, settings.start, settings.seconds)
            store = build_features(manifest, features, cache, parallel, tone=tone)
            return Utterances(manifest, store, np.arange(len(clean)))

        drawn: list[Rows] = []
        for positions in self._others.values():
            ranks = [derive(seed, "poisoned", name) for name in self._clients.take(positions).ids]
            count = max(1, round(settings.poisoned * len(positions)))
            drawn.append(positions[np.sort(np.argsort(ranks, kind="stable")[:count])])
        tones, start = marked(self._clients.take(np.concatenate(drawn))), len(self._clients)
        for client, chosen in zip(self._others, drawn, strict=True):
            kept = np.setdiff1d(self._others[client], chosen)
            self._others[client] = np.concatenate([kept, start + np.arange(len(chosen))])
            start += len(chosen)
        labels = self._clients.labelled
        labelled = None if labels is None else np.concatenate([labels, np.ones(len(tones), bool)])
        self._other = joined(self._clients, tones, labelled)
        scored = self._splits["test" if "test" in self._splits else "dev"]
        other = np.array([value != settings.target for value in scored.column(target)])
        self._splits = {**self._splits, SPLIT: marked(scored.take(np.flatnonzero(other)))}

    def _positions(self, client: str) -> Rows:
        place = self._places[client]
        return self._members[self._offsets[place] : self._offsets[place + 1]]


def poison(
    data: SpeechData,
    settings: Poisoning,
    attackers: Sequence[str],
    target: str,
    seed: int,
    features: FeatureSettings,
    cache: Path,
    parallel: Parallel,
) -> SpeechData:
    """The federation with the data of its attackers. `target`: the column of labels or transcripts.

    ValueError: a backdoor has nothing to be scored on.
    """
    poisoned = PoisonedSpeech(data, attackers)
    if not isinstance(settings, Backdoor):
        poisoned.flip(target, seed)
        return poisoned
    if not {"test", "dev"} & set(data.splits()):
        raise ValueError("attack.kind=backdoor is scored on test or dev, and there is neither: set data.test_share")
    poisoned.mark(settings, target, seed, features, cache, parallel)
    return poisoned
