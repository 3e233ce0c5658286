"""What the attackers of a lane do to their data and to their updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from fedray.core.attackers import Alone, Attackers, Colluding, Poisoning
from fedray.core.seeds import numpy_generator
from fedray.core.types import Client, PoisonedData, Update, Vector
from fedray.engine.jobs.work import Program
from fedray.engine.lane.lane import Lane


class Harm:
    """The attack of a lane."""

    def __init__(self, attackers: Attackers, lane: Lane, program: Program) -> None:
        self.attackers, self.lane, self.data = attackers, lane, program.data
        tensors = program.algorithm.tensors()
        self._weights = None if tensors is None else sum(tensors)  # in a delta; running statistics follow

    @property
    def colludes(self) -> bool:
        """Whether an update waits for those of all other attackers."""
        return isinstance(self.attackers.settings, Colluding)

    def poisoned(self, client: Client) -> Client:
        """The client with the data that it trains on."""
        if isinstance(self.attackers.settings, Poisoning) and client.id in self.attackers.clients:
            return replace(client, data=cast(PoisonedData, self.data).poisoned(client.id))
        return client

    def alone(self, client: str, update: Update) -> Update:
        """The update that a client sends, from the one that it trained."""
        attack = self.attackers.settings
        if client not in self.attackers.clients or not isinstance(attack, Alone) or not update.delta.size:
            return update
        generator = numpy_generator(self.attackers.seed, "attack", self.lane.trains_from, client)
        return self._with(update, attack.sent(update.delta[: self._weights], generator))

    def together(self, updates: Sequence[Update]) -> list[Update]:
        """The updates that the attackers send, from those that they trained."""
        attack = self.attackers.settings
        if not isinstance(attack, Colluding) or not updates or not updates[0].delta.size:
            return list(updates)
        trained = [update.delta[: self._weights] for update in updates]
        sent = attack.together(trained, self.attackers.cohort)
        return [self._with(update, sent) for update in updates]

    def _with(self, update: Update, weights: Vector) -> Update:
        return replace(update, delta=np.concatenate([weights, update.delta[weights.size :]]))
