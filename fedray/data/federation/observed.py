"""The federation of an audit of updates: auxiliary clients take no part, and clients have attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from fedray.core.privacy.audits import Updates, parted
from fedray.core.privacy.leaks import few, learnable
from fedray.core.seeds import derive
from fedray.data.features.dataset import Utterances
from fedray.data.federation.audited import AuditedSpeech
from fedray.data.federation.groups import UNKNOWN, majority, read_attribute, speakers_of
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import Manifest
from fedray.storage.cache import key

LABEL = "label"  # the attribute that every labelled corpus has: a client's most frequent label
Values = Mapping[str, Mapping[str, str]]  # attribute -> speaker or client -> its value


class ObservedSpeech(AuditedSpeech):
    """The federation `data` without its auxiliary clients: a fedray.core.types.ObservedData."""

    def __init__(self, data: SpeechData, candidates: Mapping[str, bool], attributes: Values) -> None:
        super().__init__(data, candidates, utterances=0)
        self.attributes = {name: dict(values) for name, values in attributes.items()}

    def half(self, client: str, part: int) -> Utterances:
        """Every second utterance of the client, from the first or the second, in an order that their names decide."""
        data = self.load(client)
        order = np.argsort(np.array([derive("half", name) for name in data.ids]), kind="stable")
        return data.take(np.sort(order[part::2]))

    def fingerprint(self, part: str = "all", copied: bool = False) -> str:
        whole = super().fingerprint(part, copied)
        return key({"data": whole, "attributes": self.attributes}) if part == "all" else whole


def observed(data: SpeechData, settings: Updates, seed: int, known: Values) -> ObservedSpeech:
    """Make the federation of an audit of updates. `known`: the values of speakers, by attribute, without `LABEL`.

    ValueError: there are too few clients, or of an attribute too few auxiliary ones with the same value.
    """
    auxiliary, attacked = parted(data.client_ids(), settings, seed)
    candidates = dict.fromkeys(auxiliary, False) | dict.fromkeys(attacked, True)
    loaded = {client: data.load(client) for client in candidates}
    attributes: dict[str, dict[str, str]] = {}
    for name in settings.attributes:
        attributes[name] = values = {}
        for client, utterances in loaded.items():
            value = _label(utterances) if name == LABEL else majority(utterances.speakers, known[name])
            if value not in (None, UNKNOWN):
                values[client] = str(value)
        kinds = learnable(values[client] for client in auxiliary if client in values)
        if len(kinds) < 2:
            raise ValueError(few(name, kinds))
    return ObservedSpeech(data, candidates, attributes)


def speaker_values(settings: Updates, parts: Mapping[str, Manifest], corpus: Values) -> dict[str, dict[str, str]]:
    """Attribute -> speaker -> its value, from the table of the settings, or from what the corpus knows.

    ValueError: neither has such an attribute, or nothing of the speakers.
    """
    found, speakers = {}, speakers_of(parts)
    for name in settings.attributes:
        if name == LABEL:
            continue
        if settings.file is not None:
            keys = "audit.speaker", "audit.attributes"
            values: Mapping[str, str] = read_attribute(settings.file, settings.speaker, name, speakers, keys)
        elif name in corpus:
            values = corpus[name]
        else:
            raise ValueError(unknown(name, corpus))
        found[name] = {speaker: values.get(speaker, UNKNOWN) for speaker in speakers}
    return found


def unknown(name: str, corpus: Values | tuple[str, ...]) -> str:
    """Why an attribute is refused, in words. `corpus`: the attributes that the corpus knows."""
    choices = f"one of {', '.join((LABEL, *corpus))}" if corpus else LABEL
    return (
        f"audit.attributes: {name!r} is a column of a table of speakers: name the table as audit.file, or choose "
        f"{choices}"
    )


def _label(utterances: Utterances) -> str | None:
    """The most frequent label, the first by name of equally many; None without labels."""
    counts = Counter(label for label in utterances.labels if label)
    return min(counts, key=lambda name: (-counts[name], name)) if counts else None
