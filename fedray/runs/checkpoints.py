"""Checkpoints: the progress of a run, on a disk or on object storage."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from fedray.core.types import ServerState
from fedray.runs.client_states import Written
from fedray.storage import serialize
from fedray.storage.base import Storage
from fedray.storage.files import StorageError, faults, in_place_of, sync, write_atomically

MANIFEST = "manifest.json"


@dataclass
class ClientRecord:
    """The server's record of a client that has taken part."""

    version: int | None = None  # of its state, None: it has none
    rounds: int = 0
    failures: int = 0
    last_round: int = 0
    report: dict[str, float] = field(default_factory=dict)  # its last report: examples, loss, ...
    bytes: int | None = None  # of its state, None: unknown
    hash: str | None = None  # of its state's file

    @property
    def state(self) -> Written | None:
        return None if self.version is None else Written(self.version, self.bytes, self.hash)


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


class Checkpoints:
    """`round_000025/` holds server.pt, clients.parquet, progress.json, and a manifest with their hashes.

    On a disk a checkpoint counts once its folder is synced and renamed into place; on object storage, once its manifest
    is written, after all other files. There file names contain hashes (server.0123456789ab.pt): saving a round again
    overwrites no file that the older manifest names.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.root = storage.local

    def save(self, progress: Progress) -> None:
        clients = io.BytesIO()
        pq.write_table(clients_table(progress.clients), clients)
        about = {"round": progress.round, "totals": progress.totals, "best": progress.best}
        files = {
            "server.pt": serialize.dumps({"params": progress.state.params, "extra": progress.state.extra}),
            "clients.parquet": clients.getvalue(),
            "progress.json": json.dumps(about).encode(),
        }
        if self.root is None:
            self._put(
                _checkpoint(progress.round),
                {name.replace(".", f".{_hash(data)[:12]}."): data for name, data in files.items()},
            )
            return
        final = self.root / _checkpoint(progress.round)
        with in_place_of(final) as temporary:
            temporary.mkdir()
            for name, data in (files | {MANIFEST: _manifest(files)}).items():
                with faults(final / name):
                    (temporary / name).write_bytes(data)

    def _put(self, folder: str, files: Mapping[str, bytes]) -> None:
        try:
            for name, data in files.items():
                self.storage.write(f"{folder}/{name}", data)
            self.storage.write(f"{folder}/{MANIFEST}", _manifest(files))
        except StorageError:
            with suppress(StorageError):  # it must not hide the first
                if not self.storage.exists(f"{folder}/{MANIFEST}"):
                    self.storage.remove(folder)
            raise
        self.storage.remove(
            *(f"{folder}/{name}" for name in self.storage.files(folder) if name not in (*files, MANIFEST))
        )

    def saved_rounds(self) -> list[int]:
        names = self.storage.names()
        if self.root is None:
            names = [
                name.removesuffix(f"/{MANIFEST}") for name in self.storage.files() if name.endswith(f"/{MANIFEST}")
            ]
        return sorted(
            {int(match[2]) for name in names if (match := re.fullmatch(r"(\.)?round_(\d+)(?(1)\.old)", name))}
        )

    def shown(self, round: int) -> str:
        """The path or URI of a checkpoint, for messages."""
        return self.storage.shown(self._where(round))

    def load(self, round: int) -> Progress:
        """The checkpoint of a round. ValueError: a file is cut short or changed; the message names it."""
        found = self._contents(round, ("server", "progress", "clients"))
        server = serialize.loads(found["server"][1], found["server"][0])
        rest = json.loads(found["progress"][1])
        clients = read_clients(io.BytesIO(found["clients"][1]))
        return Progress(
            ServerState(server["params"], server["extra"]), rest["round"], clients, rest["totals"], rest["best"]
        )

    def load_clients(self, round: int) -> dict[str, ClientRecord]:
        """The table of clients of a checkpoint."""
        return read_clients(io.BytesIO(self._contents(round, ("clients",))["clients"][1]))

    def prune(self, keep: Collection[int]) -> None:
        """Remove all checkpoints but those of these rounds, and the remains of writers that were killed."""
        for name in self.storage.names():
            match = re.fullmatch(r"\.?round_(\d+)(\.old|\.tmp)?", name)
            if match is None:
                continue
            replaced = match[2] == ".old" and self.root is not None and (self.root / f"round_{match[1]}").exists()
            if int(match[1]) not in keep or replaced or match[2] == ".tmp":
                self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove a checkpoint. The first step makes it incomplete, so that half of a checkpoint never counts."""
        if self.root is None:
            self.storage.remove(f"{name}/{MANIFEST}")
        elif not name.endswith(".tmp"):
            gone = f".{name.strip('.')}.tmp"
            with faults(self.root / name, "removed"):
                shutil.rmtree(self.root / gone, ignore_errors=True)
                os.replace(self.root / name, self.root / gone)
                sync(self.root)
            name = gone
        self.storage.remove(name)

    def _where(self, round: int) -> str:
        name, old = _checkpoint(round), f".{_checkpoint(round)}.old"
        moved = self.root is not None and not (self.root / name).exists() and (self.root / old).exists()
        return old if moved else name

    def _contents(self, round: int, wanted: Collection[str]) -> dict[str, tuple[str, bytes]]:
        """Files of a checkpoint by the part of their names before the first dot: (name for messages, content)."""
        folder = self._where(round)
        manifest = self.storage.shown(f"{folder}/{MANIFEST}")
        try:
            hashes = dict(json.loads(self.storage.read(f"{folder}/{MANIFEST}")))
        except (FileNotFoundError, ValueError, TypeError) as error:
            raise ValueError(f"{manifest}: the checkpoint is incomplete ({error})") from error
        found = {}
        for name, expected in hashes.items():
            part, shown = name.partition(".")[0], self.storage.shown(f"{folder}/{name}")
            if part in wanted:
                with suppress(FileNotFoundError):
                    found[part] = shown, self.storage.read(f"{folder}/{name}")
                if part not in found or _hash(found[part][1]) != expected:
                    raise ValueError(
                        f"{shown}: is missing or not what was written (cut short?): "
                        f"remove {self.storage.shown(folder)} to go on from the checkpoint before"
                    )
        if missing := set(wanted) - set(found):
            raise ValueError(
                f"{manifest}: the checkpoint is incomplete (it does not name {', '.join(sorted(missing))})"
            )
        return found


def clients_table(clients: Mapping[str, ClientRecord]) -> pa.Table:
    """A table of all clients that took part: rounds, failures, version, bytes and hash of the state, last report."""
    names = sorted({name for record in clients.values() for name in record.report})
    table: dict[str, Any] = {"client": list(clients)}
    for column in ("version", "bytes", "hash", "rounds", "failures", "last_round"):
        kind = pa.string() if column == "hash" else pa.int64()
        table[column] = pa.array([getattr(record, column) for record in clients.values()], kind)
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
        counts = {column: row[column] for column in ("version", "rounds", "failures", "last_round")}
        state = {column: row.get(column) for column in ("bytes", "hash")}  # missing in checkpoints of earlier versions
        clients[row["client"]] = ClientRecord(report=report, **counts, **state)
    return clients


def _checkpoint(round: int) -> str:
    return f"round_{round:06d}"


def _manifest(files: Mapping[str, bytes]) -> bytes:
    return json.dumps({name: _hash(data) for name, data in sorted(files.items())}, indent=2).encode()


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data).hexdigest()[:32]
