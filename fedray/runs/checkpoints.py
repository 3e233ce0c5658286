"""Checkpoints: the progress of a run, on a disk or on object storage."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, BinaryIO, cast

import pyarrow.parquet as pq

from fedray.core.types import ServerState
from fedray.runs.client_states import Written
from fedray.runs.progress import ClientRecord, Progress, clients_table, read_clients
from fedray.storage import serialize
from fedray.storage.base import Storage
from fedray.storage.files import StorageError, faults, in_place_of, sync

MANIFEST = "manifest.json"
FILE = re.compile(r"[\w.-]+", re.ASCII)
# If the table of clients has at least so many bytes, a checkpoint writes only the changes. In a bucket that takes two
# more requests.
LARGE, LARGE_IN_BUCKETS = 10_000, 100_000
OPTIONAL = ("changed", "clock")  # parts that not every checkpoint has
Opened = dict[str, tuple[BinaryIO, str]]  # part -> its open file, and the name for messages


@dataclass
class Shared:
    """A whole table of clients, which several checkpoints share."""

    clients: dict[str, ClientRecord]
    bytes: int
    file: str  # in the newest checkpoint that has it
    hash: str
    changes: int = 0  # bytes of all tables of changes to it


class Checkpoints:
    """`round_000025/` holds server.pt, clients.parquet, progress.json, and a manifest with their hashes.

    Checkpoints share a large clients.parquet by links (in a bucket, by copies within it); changed.parquet holds the
    clients with newer records. Once all changes to a table have as many bytes as the table, the next checkpoint writes
    a new table: with n clients, c of them in a round, a checkpoint writes about sqrt(2 n c) records instead of n.

    On a disk a checkpoint counts once its folder is synced and renamed into place; on object storage, once its manifest
    is written, after all other files. There file names contain hashes (server.0123456789ab.pt): saving a round again
    overwrites no file that the older manifest names.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.root = storage.local
        self._large = LARGE if self.root is not None else LARGE_IN_BUCKETS
        self._shared: Shared | None = None

    def save(self, progress: Progress) -> None:
        about = {name: getattr(progress, name) for name in ("round", "totals", "best", "private", "kept")}
        server = {"params": progress.state.params, "extra": progress.state.extra}
        files = {
            "progress.json": json.dumps(about | {"models": [vars(one) for one in progress.models.values()]}).encode(),
        }
        if progress.clock:
            files["clock.pt"] = serialize.dumps(progress.clock)
        shared = self._add_clients(progress.clients, files)
        folder = _checkpoint(progress.round)
        if self.root is None:
            files["server.pt"] = serialize.dumps(server)
            files = {name.replace(".", f".{_hash(data)[:12]}."): data for name, data in files.items()}
            self._put(folder, files, shared)
        else:
            final = self.root / folder
            with in_place_of(final) as temporary:
                temporary.mkdir()
                with faults(final / "server.pt"), (temporary / "server.pt").open("wb") as file:
                    hashed = Hashed(file)
                    try:
                        serialize.dump(server, cast(IO[bytes], hashed))
                    except RuntimeError as error:  # torch's, in place of what `write` raised
                        raise hashed.error or error from error
                hashes = _hashes(files, shared) | {"server.pt": hashed.hash}
                for name, data in (files | {MANIFEST: _manifest(hashes)}).items():
                    with faults(final / name):
                        (temporary / name).write_bytes(data)
                if shared is not None:
                    self.storage.link(shared.file, f"{temporary.name}/{_name(shared)}")
        if shared is not None:
            shared.file = f"{folder}/{_name(shared)}"
            return
        (name,) = (name for name in files if name.startswith("clients."))
        size = len(files[name])
        self._shared = Shared(dict(progress.clients), size, f"{folder}/{name}", _hash(files[name]))

    def _add_clients(self, clients: Mapping[str, ClientRecord], files: dict[str, bytes]) -> Shared | None:
        """Add the table of clients to a checkpoint's files, or add the changes to a shared table and return that table.

        A changed record is a new object.
        """
        shared = self._shared
        if shared is not None and shared.bytes >= self._large and self.storage.exists(shared.file):
            changed = {name: record for name, record in clients.items() if shared.clients.get(name) is not record}
            new = sum(name not in shared.clients for name in changed)
            table = _parquet(changed)
            shared.changes += len(table)
            if len(clients) == len(shared.clients) + new and shared.changes <= shared.bytes:
                files["changed.parquet"] = table
                return shared
        files["clients.parquet"] = _parquet(clients)
        return None

    def _put(self, folder: str, files: Mapping[str, bytes], shared: Shared | None) -> None:
        try:
            for name, data in files.items():
                self.storage.write(f"{folder}/{name}", data)
            if shared is not None:
                self.storage.link(shared.file, f"{folder}/{_name(shared)}")
            self.storage.write(f"{folder}/{MANIFEST}", _manifest(_hashes(files, shared)))
        except StorageError:
            with suppress(StorageError):  # must not hide the first error
                if not self.storage.exists(f"{folder}/{MANIFEST}"):
                    self.storage.remove(folder)
            raise
        self.storage.remove(
            *(
                f"{folder}/{name}"
                for name in self.storage.files(folder)
                if name not in (*files, MANIFEST, shared and _name(shared))
            )
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
        with self._opened(round, ("server", "progress", "clients", *OPTIONAL)) as found:
            server = serialize.read(*found["server"])  # straight into its arrays: a large model is in memory once
            rest = json.load(found["progress"][0])
            clock = serialize.read(*found["clock"]) if "clock" in found else {}
            clients = _clients(found)
        state = ServerState(server["params"], server["extra"])
        kept = rest.get("kept", {})  # 1.0.0 writes none
        models = {one["version"]: Written(**one) for one in rest["models"]}
        return Progress(
            state, rest["round"], clients, rest["totals"], rest["best"], rest["private"], clock, kept, models
        )

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

    @contextmanager
    def _opened(self, round: int, wanted: Collection[str]) -> Iterator[Opened]:
        """Files of a checkpoint, whose hashes are right, by the part of their names before the first dot."""
        folder = self._where(round)
        manifest = self.storage.shown(f"{folder}/{MANIFEST}")
        try:
            hashes = dict(json.loads(self.storage.read(f"{folder}/{MANIFEST}")))
            if odd := [name for name in hashes if not FILE.fullmatch(str(name))]:
                raise ValueError(f"it names {odd[0]!r}, which is not a checkpoint file")
        except (FileNotFoundError, ValueError, TypeError) as error:
            raise ValueError(f"{manifest}: the checkpoint is incomplete ({error})") from error
        found: Opened = {}
        with ExitStack() as files:
            for name, expected in hashes.items():
                part, shown = name.partition(".")[0], self.storage.shown(f"{folder}/{name}")
                if part in wanted:
                    with suppress(FileNotFoundError):
                        found[part] = files.enter_context(self.storage.opened(f"{folder}/{name}")), shown
                    if part not in found or _hash_of(found[part][0]) != expected:
                        raise ValueError(
                            f"{shown}: is missing or has changed since it was written (cut short?): "
                            f"remove {self.storage.shown(folder)} to continue from the previous checkpoint"
                        )
            if missing := set(wanted) - set(found) - set(OPTIONAL):
                raise ValueError(
                    f"{manifest}: the checkpoint is incomplete (it does not name {', '.join(sorted(missing))})"
                )
            yield found


def _clients(found: Opened) -> dict[str, ClientRecord]:
    """The clients in the files of a checkpoint: a whole table, and perhaps changes to it."""
    tables = [found[part][0] for part in ("clients", "changed") if part in found]
    return {client: record for table in tables for client, record in read_clients(table).items()}


def _parquet(clients: Mapping[str, ClientRecord]) -> bytes:
    table = io.BytesIO()
    pq.write_table(clients_table(clients), table)
    return table.getvalue()


def _name(shared: Shared) -> str:
    return shared.file.rpartition("/")[2]


def _checkpoint(round: int) -> str:
    return f"round_{round:06d}"


def _hashes(files: Mapping[str, bytes], shared: Shared | None) -> dict[str, str]:
    return {name: _hash(data) for name, data in files.items()} | ({_name(shared): shared.hash} if shared else {})


def _manifest(hashes: Mapping[str, str]) -> bytes:
    return json.dumps(dict(sorted(hashes.items())), indent=2).encode()


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data).hexdigest()[:32]


def _hash_of(file: BinaryIO) -> str:
    """The hash of a file's bytes, which are read in pieces. The file is at its beginning, before and after."""
    digest = hashlib.file_digest(cast(io.BufferedReader, file), "blake2b").hexdigest()
    file.seek(0)
    return digest[:32]


class Hashed:
    """A file that is hashed while it is written: a large model need not be in memory twice."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.blake2b()
        self.error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        self._hash.update(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()[:32]
