"""Models of earlier rounds: clients that are still under way train from them when they arrive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedray.core.algorithm import Algorithm
from fedray.core.compression.codes import Code
from fedray.core.types import Broadcast
from fedray.engine.jobs.job import Reference
from fedray.engine.jobs.work import StateStore
from fedray.engine.round.downlink import Posted
from fedray.runs.client_states import MODELS, Written


class EarlierModels:
    """The broadcasts of earlier rounds, in memory, in the object store and on disk, where each is written once.

    Only what is sent in every round is kept; what no round changes is taken from the newest broadcast.
    """

    def __init__(self, states: StateStore, algorithm: Algorithm, code: Code, put: Callable[[Any], Reference]) -> None:
        """`put`: puts a value into the object store."""
        self._states, self._algorithm, self._code, self._put = states, algorithm, code, put
        self._broadcasts: dict[int, Broadcast] = {}
        self._posted: dict[int, Posted] = {}

    def posted(self, round: int) -> Posted:
        """The broadcast of a round in the object store."""
        if round not in self._posted:
            self._posted[round] = Posted.of(self._broadcasts[round], self._code, self._algorithm, self._put)
        return self._posted[round]

    def lost(self) -> None:
        """Forget the objects in the object store, which has lost some: `posted` puts them again."""
        self._posted.clear()

    def keep(
        self, rounds: Collection[int], newest: Posted, round: int, before: Mapping[int, Written]
    ) -> dict[int, Written]:
        """Keep the models of these rounds and forget the others.

        `newest`: the broadcast of `round`; `before`: the models that are on disk. Returns those that stay there.
        """
        if round in rounds:
            self._broadcasts[round], self._posted[round] = newest.broadcast, newest
        self._broadcasts = {model: self._broadcasts[model] for model in rounds}
        self._posted = {model: posted for model, posted in self._posted.items() if model in rounds}
        return {model: before[model] if model in before else self._write(model) for model in sorted(rounds)}

    def load(self, models: Mapping[int, Written], newest: Broadcast) -> None:
        """Read the models that a checkpoint names. RunError: one is missing or damaged."""
        constant = newest.params[newest.params.size - newest.constant :]
        for model, written in models.items():
            saved = self._states.load(MODELS, written)
            params = np.concatenate([saved["params"], constant])
            self._broadcasts[model] = replace(
                newest, params=params, settings=dict(saved["settings"]), vectors=dict(saved["vectors"])
            )

    def _write(self, model: int) -> Written:
        broadcast = self._broadcasts[model]
        moving = broadcast.params[: broadcast.params.size - broadcast.constant]
        state = {"params": moving, "settings": dict(broadcast.settings), "vectors": dict(broadcast.vectors)}
        written = self._states.save(MODELS, model, state)
        self._states.sync({MODELS: written})
        return written
