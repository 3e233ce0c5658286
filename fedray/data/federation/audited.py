"""The federation of an audit, with its candidates. Those outside are not clients, but their loss is measured too."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from fedray.core.privacy.audits import Canaries, Speakers, coins, drawn
from fedray.core.types import OWN
from fedray.data.features.dataset import Utterances
from fedray.data.federation.partition import PartitionSettings
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import SpeechData
from fedray.storage.cache import key


class AuditedSpeech(SpeechData):
    """The federation `data`, whose clients exclude candidates outside: a fedray.core.types.AuditedData."""

    def __init__(self, data: SpeechData, candidates: Mapping[str, bool], utterances: int) -> None:
        """`utterances`: the number of a candidate's utterances, its first ones, by which it is judged."""
        vars(self).update(data.__getstate__())
        self.candidates, self._judged, self._everybody = dict(candidates), utterances, self._ids
        self._ids = within(self._everybody, candidates)
        if hasattr(self, "_held"):  # data.own_share
            places = [self._places[client] for client in self._ids]
            rows = [np.arange(*self._own_offsets[place : place + 2]) for place in places]
            self._splits = {**self._splits, OWN: self._held.take(np.concatenate(rows))}

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {client: place for place, client in enumerate(self._everybody)}

    def judged(self, client: str) -> Utterances:
        """The first utterances of a candidate's data, by which it is judged."""
        data = self.load(client)
        return data.take(np.arange(min(self._judged, len(data))))

    def fingerprint(self, part: str = "all", copied: bool = False) -> str:
        whole = super().fingerprint(part, copied)
        return (
            whole if part == "server" else key({"data": whole, "candidates": self.candidates, "judged": self._judged})
        )


def audited(data: SpeechData, settings: Canaries | Speakers, seed: int) -> AuditedSpeech:
    """Make the federation of an audit. The clients of `data` include all candidates.

    Raises ValueError if there are too few clients, or too few candidates on a side.
    """
    return AuditedSpeech(data, candidates(data.client_ids(), settings, seed), settings.utterances)


def candidates(clients: Sequence[str], settings: Canaries | Speakers, seed: int) -> dict[str, bool]:
    """Choose the candidates: candidate -> whether it is inside."""
    names = settings.names if isinstance(settings, Canaries) else drawn(clients, settings, seed)
    return coins(names, seed)


def within(clients: Sequence[str], candidates: Mapping[str, bool]) -> list[str]:
    """The clients, except candidates outside."""
    return [client for client in clients if candidates.get(client, True)]


def check_candidates(settings: Canaries | Speakers, data: DataSettings) -> None:
    """Raise ValueError if the data settings would mix a candidate's utterances with others, or leave some out."""
    clients: PartitionSettings = data.clients
    if clients.by != "speaker":
        raise ValueError(f"audit needs data.clients.by=speaker, not {clients.by}: a candidate is a client of its own")
    if data.own_share:
        raise ValueError("data.own_share would keep back what a candidate is judged by: remove it, or remove audit")
    if not isinstance(settings, Canaries):
        return
    if clients.count is not None:
        raise ValueError("data.clients.count would leave some of the canaries out: remove it, or remove audit")
    size = settings.utterances * settings.repeat
    if clients.min_utterances > size or (clients.max_utterances or size) < size:
        raise ValueError(
            f"a canary has {settings.utterances} x {settings.repeat} utterances, which data.clients.min_utterances or "
            "data.clients.max_utterances leaves out: change them, or audit.utterances"
        )
