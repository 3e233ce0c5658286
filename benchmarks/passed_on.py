"""FedMLAC as a simulation in one process plays it when it keeps one personal model for all clients: each goes on with the last one's.

Not the algorithm, since private weights travel from client to client; benchmarks/fedmlac_keywords.py plays it to see what the paper's
numbers may come from. A lane passes the model on from client to client; the next round begins with what the lane's first client kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fedray.algorithms import ALGORITHMS
from fedray.algorithms.fedmlac import FedMLAC
from fedray.core.types import Client, Received, Update


class PassedOn(FedMLAC):
    def lane_update(self, clients: Iterator[Client], received: Received) -> Iterator[Update]:
        state = None
        for client in clients:
            update = self.client_update(client if state is None else replace(client, state=state), received)
            state = update.state
            yield update


ALGORITHMS["passed_on"] = PassedOn
