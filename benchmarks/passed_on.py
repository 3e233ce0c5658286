"""FedMLAC as a simulation in one process plays it that has one personal model for all its clients: each goes on with the last one's.

Not the algorithm, since private weights go from client to client; benchmarks/fedmlac_keywords.py plays it, on one actor, to see where the
paper's order may come from. What is carried lies in the actor: such a run is neither resumed nor played by several actors to the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedray.algorithms import ALGORITHMS
from fedray.algorithms.fedmlac import FedMLAC, FedMLACSettings
from fedray.core.metrics import Metrics
from fedray.core.types import Client, Received, State, Update


@dataclass(frozen=True)
class PassedOnSettings(FedMLACSettings):
    pass


class PassedOn(FedMLAC):
    Settings = PassedOnSettings
    carried: State | None = None

    def client_update(self, client: Client, received: Received) -> Update:
        update = super().client_update(self._with_the_one(client), received)
        self.carried = update.state
        return update

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        return super().client_evaluate(self._with_the_one(client), received, data)

    def _with_the_one(self, client: Client) -> Client:
        return client if self.carried is None else replace(client, state=self.carried)


ALGORITHMS["passed_on"] = PassedOn
