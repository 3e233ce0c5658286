"""Dropouts and seeds are new in each round, and for each client and the server."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedray.core.types import Client, Received, Server, Update
from fedray.engine.round.cohort import drops_out
from fedray.engine.settings import CohortSettings
from fedray.runs.folder import RunFolder
from tests.engine import toys


class Drawing(toys.Toy):
    """A toy that records the rounds and seeds given to its clients and its server."""

    seen: list[tuple[str, int, int]] = []

    def client_update(self, client: Client, received: Received) -> Update:
        self.seen.append((client.id, received.round, client.seed))
        return super().client_update(client, received)

    def server_train(self, server: Server, received: Received) -> Update:
        self.seen.append(("server", received.round, server.seed))
        return super().server_train(server, received)


def test_clients_and_server_have_a_seed_of_their_own_in_each_round(tmp_path: Path) -> None:
    Drawing.seen.clear()
    toys.play(tmp_path, rounds=3, data=toys.ToyData(4), cohort=4, algorithm=Drawing)
    assert {(name, round) for name, round, _ in Drawing.seen} == {
        (name, round) for name in (*toys.ToyData(4).client_ids(), "server") for round in range(3)
    }
    assert len({seed for *_, seed in Drawing.seen}) == len(Drawing.seen) == 15


def test_other_clients_drop_out_in_each_round(tmp_path: Path) -> None:
    settings, names = CohortSettings(size=8, dropout=0.4), toys.ToyData(8).client_ids()
    toys.play(tmp_path, rounds=3, data=toys.ToyData(8), cohort=settings)
    answers = np.array([[not drops_out(client, settings, 7, t) for client in names] for t in range(3)])
    assert (answers[0] != answers[1]).any() and (answers[1] != answers[2]).any()
    clients = RunFolder(tmp_path).load(3).clients
    assert [clients[name].rounds if name in clients else 0 for name in names] == answers.sum(0).tolist()
