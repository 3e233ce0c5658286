"""How much of a federation's speech a model cannot learn: counted by part and by client, in words, before training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedray.data.features.dataset import Utterances
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.manifest import Mask, Rows
from fedray.training.learnable import Demand
from fedray.training.speech_to_text import SpeechToText

# Larger shares of utterances that cannot be learnt stop a run: of all training, and of a client's or the server's. A
# smaller share of such clients does not stop it: among thousands with one or two utterances some have unlucky ones.
MOST, MOST_OF_ONE, MOST_CLIENTS = 1 / 2, 2 / 3, 1 / 100
NAMED = 3  # clients in a message
SERVER, CLIENTS = "server", "clients"  # parts that train; the others are scored


@dataclass(frozen=True)
class Part:
    """Utterances, and by how much they exceed the model's limits."""

    data: Utterances
    demand: Demand
    excess: Mapping[str, Rows]  # limit -> above 0 where an utterance exceeds it, int64 [utterances]

    @property
    def lost(self) -> Mask:
        """Which utterances cannot be learnt, bool [utterances]."""
        found: Mask = np.logical_or.reduce([np.zeros(len(self.data), bool), *(one > 0 for one in self.excess.values())])
        return found


@dataclass(frozen=True)
class Survey:
    """What a model cannot learn of a federation."""

    task: SpeechToText
    parts: Mapping[str, Part]  # server, clients, and what is scored
    clients: Mapping[str, Rows]  # client -> its positions in `clients` whose texts training reads

    @classmethod
    def of(cls, task: SpeechToText, parts: Mapping[str, Utterances], clients: Mapping[str, Rows]) -> Survey:
        """Count. A model that does not say how many frames it leaves is asked (`Capacity.ask`)."""
        found = {}
        for name, data in parts.items():
            demand = task.demand(data, task.tokens(data, strict=False))
            task.capacity.ask(task.model, task.features.bins, demand)
            found[name] = Part(data, demand, task.capacity.excess(demand))
        return cls(task, found, clients)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Client -> its utterances that cannot be learnt, and all whose texts training reads. Without empty ones."""
        lost = self.parts[CLIENTS].lost
        return {name: (int(lost[rows].sum()), len(rows)) for name, rows in self.clients.items() if len(rows)}

    def problem(self) -> tuple[str, bool] | None:
        """What cannot be learnt, with the remedy, in words; whether it stops a run. None: all can be learnt."""
        held, scored = self.counts(), [part for name, part in self.parts.items() if name not in (SERVER, CLIENTS)]
        affected, clients = sum(lost > 0 for lost, _ in held.values()), len(held)
        if SERVER in self.parts:
            held["the server"] = int(self.parts[SERVER].lost.sum()), len(self.parts[SERVER].data)
        lost, count = (sum(pair[place] for pair in held.values()) for place in (0, 1))
        beyond, others = sum(int(part.lost.sum()) for part in scored), sum(len(part.data) for part in scored)
        most = sorted(name for name, pair in held.items() if pair[0] > MOST_OF_ONE * pair[1])
        refused = self._refused()
        if not lost + beyond:
            return None
        told = f"{lost + beyond:,} of {count + others:,} utterances cannot be learnt"
        told += f": {lost:,} of the {count:,} to train on"
        told += f", in {affected:,} of {clients:,} clients" if affected else ""
        told += f", and {beyond:,} of the {others:,} that are scored" if beyond else ""
        if most:
            some = ", ".join(most[:NAMED]) + (f" and {len(most) - NAMED:,} more" if len(most) > NAMED else "")
            told += f". They are more than two thirds of the utterances of {some}"
        reasons = {"alignment": self._alignment, "window": self._window, "text": self._text}
        worst = {limit: self._worst(limit) for limit in reasons}
        said = [reasons[limit](*one) for limit, one in worst.items() if one is not None]
        many = "the server" in most or len(most) > MOST_CLIENTS * clients or lost > MOST * count
        if many:
            said.append("To train all the same, set task.unlearnable=warn")
        stops = bool(refused) or (many and self.task.settings.unlearnable == "refuse")
        return ". ".join([told, *said, *refused]), stops

    def _worst(self, limit: str) -> tuple[int, Part, int] | None:
        """How many utterances exceed a limit, and the part and position of the one that does so most."""
        used = {name: np.arange(len(part.data)) for name, part in self.parts.items()}
        used[CLIENTS] = np.concatenate([np.empty(0, np.int64), *self.clients.values()])
        excesses = [
            (int(part.excess[limit][row]), part, row)
            for name, rows in used.items()
            if limit in (part := self.parts[name]).excess
            for row in rows[part.excess[limit][rows] > 0].tolist()
        ]
        if not excesses:
            return None
        _, part, row = max(excesses, key=lambda one: one[0])
        return len(excesses), part, row

    def _alignment(self, count: int, part: Part, row: int) -> str:
        needed, frames = int(part.demand.aligned[row]), int(part.demand.frames[row])
        left = needed - int(part.excess["alignment"][row])
        return (
            f"For {count:,} of them CTC needs more frames than the model leaves: one for each token, and one more "
            f"between equal tokens. The worst is {part.data.ids[row]}: it needs {needed:,} frames, and of its "
            f"{frames:,} the model leaves {left:,}. {self._remedy()}"
        )

    def _remedy(self) -> str:
        settings, pooling = self.task.settings, getattr(self.task.model_settings, "time_pooling", 1)
        prefix = "transcript_" if hasattr(settings, "transcript_tokens") else ""
        tokens = getattr(settings, f"{prefix}tokens")
        ways, features = [], self.task.features
        if isinstance(features, LogMelSettings):
            ways = [f"a smaller features.hop_ms (it is {features.hop_ms:g})"]
        if pooling > 1:
            ways.insert(0, f"a smaller model.time_pooling (it is {pooling})")
        if tokens != "pretrained":
            ways.insert(
                0, f"task.{prefix}tokens=unigram" if tokens == "characters" else f"a larger task.{prefix}vocabulary"
            )
        return f"Set {' or '.join(ways)}, or leave these utterances out" if ways else "Leave these utterances out"

    def _window(self, count: int, part: Part, row: int) -> str:
        most = self.task.limits[0] if self.task.limits else self.task.capacity.most_frames or 0
        return (
            f"{count:,} of them are longer than the model's window of {self._seconds(most)}; the longest, "
            f"{part.data.ids[row]}, lasts {self._seconds(int(part.demand.frames[row]))}. Cut them, or leave them out "
            "(data.options.max_seconds, where the reader has it)"
        )

    def _text(self, count: int, part: Part, row: int) -> str:
        most = (self.task.capacity.most_tokens or 1) - 1
        return (
            f"{count:,} of them have more tokens than the decoder writes, {most:,}; the most, "
            f"{part.demand.written[row] - 1:,}, are in {part.data.ids[row]}. Cut them, or leave them out"
        )

    def _refused(self) -> list[str]:
        """Parts that end a run: what the server or a score cannot encode. A client's failure is the client's alone."""
        found = []
        for name, part in self.parts.items():
            limits = {"window", "text"} if name == SERVER else {"window"} if name != CLIENTS else set()
            over = sum(int((excess > 0).sum()) for limit, excess in part.excess.items() if limit in limits)
            if over:
                found.append(
                    f"{name}: {over:,} of {len(part.data):,} utterances exceed the model's limits, and end a run"
                )
        return found

    def _seconds(self, frames: int) -> str:
        return f"{frames * self.task.features.hop_seconds:.2f} s"
