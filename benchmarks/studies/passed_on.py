"""FedMLAC with one personal model for all clients, passed from client to client: a likely mistake of a simulation.

This is not FedMLAC, since private weights go from client to client. benchmarks/studies/fedmlac_keywords.py runs it on
one actor to see where the paper's order of methods may come from. The model lives in the actor: such a run cannot
resume, and several actors give other bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedray.algorithms import ALGORITHMS
from fedray.algorithms.fedmlac import FedMLAC, FedMLACSettings
from fedray.core.types import Client, Evaluation, Received, State, Update


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

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, Any], final: bool
    ) -> Mapping[str, Evaluation]:
        return super().evaluate_personal(self._with_the_one(client), received, data, final)

    def _with_the_one(self, client: Client) -> Client:
        return client if self.carried is None else replace(client, state=self.carried)


ALGORITHMS["passed_on"] = PassedOn
