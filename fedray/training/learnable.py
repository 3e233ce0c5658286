"""Which utterances a model cannot learn, for want of frames or beyond its limits.

CTC spends a frame on each token, and another one between two equal tokens (Graves et al., 2006, section 3). An
utterance whose model leaves fewer frames has no alignment: its loss is infinite, and training sets it to 0.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from fedray.data.manifest import Mask, Rows


def frames_needed(tokens: Sequence[int]) -> int:
    """The fewest frames of an alignment of these tokens by CTC."""
    return len(tokens) + sum(one == other for one, other in pairwise(tokens))


@dataclass(frozen=True)
class Demand:
    """What some utterances ask of a model, int64 [utterances] each."""

    frames: Rows  # of the features
    aligned: Rows  # encoder frames that CTC needs; 0 without CTC
    written: Rows  # tokens that the decoder writes, with the end; 0 without a decoder

    @classmethod
    def of(
        cls, frames: Rows, spoken: Sequence[Sequence[int]] | None, written: Sequence[Sequence[int]] | None
    ) -> Demand:
        """`spoken`: the tokens that CTC learns; `written`: those of the decoder; None: the model learns none."""
        aligned = np.zeros(len(frames), np.int64) if spoken is None else _counts(map(frames_needed, spoken))
        tokens = np.zeros(len(frames), np.int64) if written is None else _counts(len(one) + 1 for one in written)
        return cls(frames, aligned, tokens)


def _counts(numbers: Any) -> Rows:
    return np.fromiter(numbers, np.int64)


class Capacity:
    """How many encoder frames a model leaves of an utterance, and the most frames and tokens that it takes.

    The model says it: by its static methods `output_lengths(settings, lengths)` and `limits(settings)`, if its class
    defines them; those of a base class may be wrong for it. A model without the first is asked by encoding silence
    (`ask`). A longer utterance never leaves fewer frames.
    """

    def __init__(self, model_class: Any, settings: Any) -> None:
        self._class, self._settings = model_class, settings
        self.most_frames: int | None = None
        self.most_tokens: int | None = None
        if "limits" in vars(model_class):
            self.most_frames, self.most_tokens = model_class.limits(settings)
        self._asked: list[tuple[int, int]] = []  # (feature frames, encoder frames), ascending

    def ask(self, build: Callable[[], nn.Module], bins: int, demand: Demand) -> None:
        """Learn from the model what decides this demand, unless the model's class says it."""
        if "output_lengths" in vars(self._class) or not demand.aligned.any():
            return
        pairs = sorted(set(zip(demand.frames.tolist(), demand.aligned.tolist(), strict=True)))
        with torch.random.fork_rng(devices=[]):  # no bit of the run depends on this
            model: Any = build().eval()
            for frames, needed in [pairs[-1], *pairs]:
                least, most = self._between(frames)
                if least < needed <= most:
                    silence, length = torch.zeros(1, frames, bins), torch.tensor([frames])
                    with torch.no_grad():
                        left = int(model.encode(silence, length)[1][0])
                    self._asked.insert(bisect_left(self._asked, (frames, left)), (frames, left))

    def left(self, frames: Rows) -> Rows:
        """Encoder frames of utterances with these numbers of frames; at most so many if the model was not asked."""
        if "output_lengths" in vars(self._class):
            found: Rows = self._class.output_lengths(self._settings, torch.tensor(frames)).numpy()
            return found
        return np.array([self._between(count)[1] for count in frames.tolist()], np.int64)

    def _between(self, frames: int) -> tuple[int, int]:
        """The fewest and the most encoder frames that an utterance with this number of frames can leave."""
        below = bisect_right(self._asked, frames, key=lambda pair: pair[0])
        least = self._asked[below - 1][1] if below else 0
        above = bisect_left(self._asked, frames, key=lambda pair: pair[0])
        return least, self._asked[above][1] if above < len(self._asked) else np.iinfo(np.int64).max

    def excess(self, demand: Demand) -> dict[str, Rows]:
        """Limit -> by how much each utterance exceeds it, above 0 for those that cannot be learnt.

        The limits: `alignment` (encoder frames, for CTC), `window` (frames) and `text` (tokens).
        """
        found = {}
        if demand.aligned.any():
            found["alignment"] = demand.aligned - self.left(demand.frames)
        if self.most_frames is not None:
            found["window"] = demand.frames - self.most_frames
        if self.most_tokens is not None:
            found["text"] = demand.written - self.most_tokens
        return found

    def unlearnable(self, demand: Demand) -> Mask:
        """Which utterances cannot be learnt, bool [utterances]. A decoder learns also what CTC cannot align."""
        found = np.zeros(len(demand.frames), bool)
        for limit, excess in self.excess(demand).items():
            if limit != "alignment" or not demand.written.any():
                found |= excess > 0
        return found
