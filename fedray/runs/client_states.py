"""Client states in versions: a new version becomes current only with the checkpoint that names it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedray.core.types import RunError, State
from fedray.storage import serialize
from fedray.storage.base import Storage
from fedray.storage.opening import open_storage

MODELS = "/models"  # in place of a client in the store: the broadcasts of earlier rounds; a version is a round


@dataclass(frozen=True)
class Written:
    """A client state as a checkpoint names it."""

    version: int  # rounds done when it was written
    bytes: int
    hash: str


class ClientStore:
    """`<client>/<version>.pt` in a folder or on object storage."""

    def __init__(self, place: str | Path | Storage) -> None:
        self.storage = place if isinstance(place, Storage) else open_storage(place)

    def name(self, client: str, version: int) -> str:
        return f"{folder_name(client)}/{version:06d}.pt"

    def load(self, client: str, written: Written) -> State:
        """Load a state. RunError: it is missing, or has changed since it was written; the message names it."""
        name = self.name(client, written.version)
        shown = self.storage.shown(name)
        try:
            data = self.storage.read(name)
            if hash_of(data) != written.hash:
                raise ValueError(f"{shown}: has changed since it was written ({_expected(len(data), written)})")
            return serialize.loads(data, shown)
        except (OSError, ValueError) as error:
            what = f"{shown}: is missing" if isinstance(error, FileNotFoundError) else str(error)
            raise RunError(
                f"{what}. It is {described(client)}: put the file back, or continue from an older checkpoint; "
                "`fedray resume` names the one to remove"
            ) from error

    def save(self, client: str, version: int, state: State) -> Written:
        """Write a state, which survives a power loss once `sync` has returned."""
        data = serialize.dumps(state)
        self.storage.write_soon(self.name(client, version), data)
        return Written(version, len(data), hash_of(data))

    def sync(self, written: Mapping[str, Written]) -> None:
        """Wait until these states (client -> state) survive a power loss."""
        if written:
            self.storage.sync([self.name(client, state.version) for client, state in written.items()])

    def lost(self, named: Iterable[tuple[str, Written]], sizes: Mapping[str, int]) -> Iterator[tuple[str, str]]:
        """Yield (client, what is wrong with its file) for each state that is missing or has another size.

        `sizes`: file -> bytes, as the storage lists them.
        """
        for client, written in named:
            name = self.name(client, written.version)
            if name not in sizes:
                yield client, f"{self.storage.shown(name)}: is missing"
            elif sizes[name] != written.bytes:
                changed = f"has changed since it was written ({_expected(sizes[name], written)})"
                yield client, f"{self.storage.shown(name)}: {changed}"

    def remove(self, client: str, version: int) -> None:
        self.remove_all([(client, version)])

    def remove_all(self, named: Iterable[tuple[str, int]]) -> None:
        """Remove the states of these (client, version) pairs."""
        self.storage.remove(*(self.name(client, version) for client, version in named))

    def adopt(self, other: ClientStore, named: Collection[tuple[str, int]]) -> None:
        """Take over the states of these (client, version) pairs from another store.

        Stores on one disk share files by links, because a version is never rewritten.
        """
        for client, version in named:
            name = self.name(client, version)
            mine, theirs = (storage.local and storage.local / name for storage in (self.storage, other.storage))
            if mine is not None and theirs is not None:
                mine.parent.mkdir(parents=True, exist_ok=True)
                with suppress(OSError):  # another disk, or one without links
                    mine.unlink(missing_ok=True)
                    os.link(theirs, mine)
                    continue
            self.storage.write_soon(name, other.storage.read(name))
        self.storage.sync([self.name(client, version) for client, version in named])

    def keep_only(self, named: set[tuple[str, int]], there: Iterable[str] | None = None) -> None:
        """Remove all states but those of these (client, version) pairs, and the remains of writers that were killed.

        `there`: all files, if the caller has listed them already.
        """
        kept = {self.name(client, version) for client, version in named}
        names = self.storage.files() if there is None else there
        self.storage.remove(*(name for name in names if name.endswith((".pt", ".tmp")) and name not in kept))


def described(client: str) -> str:
    """What a client's file in the store holds, in words."""
    return "a model that clients train from" if client == MODELS else f"the state of client {client}"


def hash_of(data: bytes) -> str:
    """The hash of a state's bytes, by which a checkpoint knows them."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _expected(size: int, written: Written) -> str:
    same = size == written.bytes
    return "its hash differs" if same else f"{size:,} bytes of {written.bytes:,}: cut short?"


def folder_name(client: str) -> str:
    """The client's id if it is a valid file name, else a readable prefix and a hash."""
    if re.fullmatch(r"\w[\w.=@#+-]{0,99}", client, flags=re.ASCII):
        return client
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', client)[:40]}-{hashlib.blake2b(client.encode(), digest_size=8).hexdigest()}"
