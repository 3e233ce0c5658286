"""The progress of a run between rounds, and the table of its clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from fedray.core.types import ServerState, State
from fedray.runs.client_states import MODELS, Written
from fedray.storage.files import write_atomically

COUNTS = ("rounds", "failures", "last_round")  # of a ClientRecord


@dataclass
class ClientRecord:
    """The server's record of a client that has taken part, or that has prepared before the first round."""

    state: Written | None = None  # None: it has none
    rounds: int = 0
    failures: int = 0
    last_round: int = 0
    report: dict[str, float] = field(default_factory=dict)  # its last report: examples, loss, ...


@dataclass
class Progress:
    """The state of a run between rounds, which a checkpoint stores."""

    state: ServerState
    round: int = 0  # rounds done
    clients: dict[str, ClientRecord] = field(default_factory=dict)
    totals: dict[str, float] = field(
        default_factory=lambda: {"up_bytes": 0, "down_bytes": 0, "failed": 0, "seconds": 0.0}
    )
    best: dict[str, float] | None = None  # {"round", "value"}
    private: dict[str, float] = field(default_factory=dict)  # of a private run: noise, bounds of the next round
    clock: State = field(default_factory=dict)  # with `devices`: the virtual time, and the trips on the way
    kept: dict[str, float] = field(default_factory=dict)  # what the strategy kept of the last round
    models: dict[int, Written] = field(default_factory=dict)  # round -> its broadcast, from which trips train

    def took_part(self, client: str) -> bool:
        """Whether the client has trained, or failed, in a round; preparing before the first round does not count."""
        record = self.clients.get(client)
        return record is not None and record.rounds + record.failures > 0

    def files(self) -> Iterator[tuple[str, Written]]:
        """Yield what the checkpoint names in the store of client states: (client or `MODELS`, state)."""
        for client, record in self.clients.items():
            if record.state is not None:
                yield client, record.state
        for written in self.models.values():
            yield MODELS, written


def clients_table(clients: Mapping[str, ClientRecord]) -> pa.Table:
    """A table of all clients that took part: rounds, failures, version, bytes and hash of the state, last report."""
    names = sorted({name for record in clients.values() for name in record.report})
    table: dict[str, Any] = {"client": list(clients)}
    for column, kind in (("version", pa.int64()), ("bytes", pa.int64()), ("hash", pa.string())):
        table[column] = pa.array([getattr(record.state, column, None) for record in clients.values()], kind)
    for column in COUNTS:
        table[column] = pa.array([getattr(record, column) for record in clients.values()], pa.int64())
    for name in names:
        table[f"report/{name}"] = pa.array([record.report.get(name) for record in clients.values()], pa.float64())
    return pa.table(table)


def write_clients(clients: Mapping[str, ClientRecord], path: Path) -> None:
    """Write clients.parquet, a row for each client."""
    write_atomically(path, lambda temporary: pq.write_table(clients_table(clients), temporary))


def read_clients(source: Path | BinaryIO) -> dict[str, ClientRecord]:
    """The clients of a checkpoint, as `write_clients` writes them."""
    clients = {}
    for row in pq.read_table(source).to_pylist():
        report = {
            key.removeprefix("report/"): value
            for key, value in row.items()
            if key.startswith("report/") and value is not None
        }
        state = None if row["version"] is None else Written(row["version"], row["bytes"], row["hash"])
        clients[row["client"]] = ClientRecord(state, report=report, **{column: row[column] for column in COUNTS})
    return clients
