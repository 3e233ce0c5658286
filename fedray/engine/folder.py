"""A run folder: its lock, its tables of JSON lines, and its checkpoints, which are renamed into place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from fedray.core import serialize
from fedray.core.cache import write_atomically
from fedray.core.types import ServerState


@dataclass
class ClientRecord:
    """What the server side knows of a client that has taken part."""

    version: int | None = None  # of its state, None: it has none
    rounds: int = 0
    failures: int = 0
    last_round: int = 0
    report: dict[str, float] = field(default_factory=dict)  # its last report: examples, loss, ...


@dataclass
class Progress:
    """All that the driver carries from round to round; a checkpoint is this, written down."""

    state: ServerState
    round: int = 0  # rounds done
    clients: dict[str, ClientRecord] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=lambda: {"up_bytes": 0, "down_bytes": 0, "failed": 0, "seconds": 0.0})
    best: dict[str, float] | None = None  # {"round", "value"}


class RunFolder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkpoints = root / "checkpoints"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; a second run in it is refused. The lock goes with its process, however that ends."""
        lock = FileLock(self.root / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"{self.root}: another run is at work in this folder: wait for it, end it, or choose another --out") from None
        try:
            yield
        finally:
            lock.release()

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.root / name, lambda path: path.write_text(text, encoding="utf-8"))

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, json.dumps(value, indent=2) + "\n")

    def write_table(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Tab-separated with a header; rows may lack columns."""
        if rows:
            columns = list(dict.fromkeys(column for row in rows for column in row))
            lines = ["\t".join(columns), *("\t".join(str(row.get(column, "")) for column in columns) for row in rows)]
            self.write_text(name, "\n".join(lines) + "\n")

    # Tables: one JSON object a line, each with its round.

    def rows(self, name: str) -> list[dict[str, Any]]:
        path = self.root / name
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # what follows the last newline was cut short by a kill
        rows = []
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: is not a row of JSON ({error}): remove the line to go on without it") from error
        return rows

    def append(self, name: str, rows: list[Mapping[str, Any]]) -> None:
        with (self.root / name).open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))

    def rewrite(self, name: str, rows: list[Mapping[str, Any]]) -> None:
        self.write_text(name, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))

    # Checkpoints: checkpoints/round_000025/ holds server.pt, clients.parquet, progress.json, and a manifest with the hashes of these.

    def checkpoint(self, round: int) -> Path:
        return self.checkpoints / f"round_{round:06d}"

    def save(self, progress: Progress) -> None:
        final = self.checkpoint(progress.round)
        temporary = final.with_name(f".{final.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            serialize.save({"params": progress.state.params, "extra": progress.state.extra}, temporary / "server.pt")
            write_clients(progress.clients, temporary / "clients.parquet")
            (temporary / "progress.json").write_text(
                json.dumps({"round": progress.round, "totals": progress.totals, "best": progress.best}), encoding="utf-8"
            )
            hashes = {path.name: _hash(path) for path in sorted(temporary.iterdir())}
            (temporary / "manifest.json").write_text(json.dumps(hashes, indent=2), encoding="utf-8")
            shutil.rmtree(final, ignore_errors=True)  # the same round of an earlier attempt
            os.replace(temporary, final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def saved_rounds(self) -> list[int]:
        return sorted(int(path.name.removeprefix("round_")) for path in self.checkpoints.glob("round_*"))

    def load(self, round: int) -> Progress:
        """The checkpoint of a round; one that is cut short or changed is a ValueError that names the file."""
        folder = self.checkpoint(round)
        try:
            hashes = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise ValueError(f"{folder / 'manifest.json'}: the checkpoint is incomplete ({error})") from error
        for name, expected in hashes.items():
            if not (folder / name).exists() or _hash(folder / name) != expected:
                raise ValueError(
                    f"{folder / name}: is missing or not what was written (cut short?): remove {folder} to go on from the checkpoint before"
                )
        server = serialize.load(folder / "server.pt")
        rest = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
        clients = read_clients(folder / "clients.parquet")
        return Progress(ServerState(server["params"], server["extra"]), rest["round"], clients, rest["totals"], rest["best"])

    def load_clients(self, round: int) -> dict[str, ClientRecord]:
        """Of a checkpoint the table of clients alone."""
        return read_clients(self.checkpoint(round) / "clients.parquet")

    def prune(self, keep: set[int]) -> None:
        """Remove all checkpoints but these rounds'."""
        for round in self.saved_rounds():
            if round not in keep:
                shutil.rmtree(self.checkpoint(round))


def write_clients(clients: Mapping[str, ClientRecord], path: Path) -> None:
    """A table of all clients that took part: participation, failures, version of the state, and the last report."""
    names = sorted({name for record in clients.values() for name in record.report})
    table: dict[str, Any] = {"client": list(clients)}
    for column in ("version", "rounds", "failures", "last_round"):
        table[column] = pa.array([getattr(record, column) for record in clients.values()], pa.int64())
    for name in names:
        table[f"report/{name}"] = pa.array([record.report.get(name) for record in clients.values()], pa.float64())
    write_atomically(path, lambda temporary: pq.write_table(pa.table(table), temporary))


def read_clients(path: Path) -> dict[str, ClientRecord]:
    clients = {}
    for row in pq.read_table(path).to_pylist():
        report = {key.removeprefix("report/"): value for key, value in row.items() if key.startswith("report/") and value is not None}
        clients[row["client"]] = ClientRecord(row["version"], row["rounds"], row["failures"], row["last_round"], report)
    return clients


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
