"""Client states in versions: a new version becomes current only with the checkpoint that names it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fedray.core.types import State
from fedray.storage import serialize
from fedray.storage.base import Storage
from fedray.storage.opening import open_storage


class ClientStore:
    """`<client>/<version>.pt` in a folder or on object storage. The version: rounds done when it was written."""

    def __init__(self, place: str | Path | Storage) -> None:
        self.storage = place if isinstance(place, Storage) else open_storage(place)

    def name(self, client: str, version: int) -> str:
        return f"{folder_name(client)}/{version:06d}.pt"

    def load(self, client: str, version: int) -> State:
        """FileNotFoundError, ValueError: the state is missing, or damaged; the message names it."""
        name = self.name(client, version)
        return serialize.loads(self.storage.read(name), self.storage.shown(name))

    def save(self, client: str, version: int, state: State) -> None:
        self.storage.write(self.name(client, version), serialize.dumps(state))

    def remove(self, client: str, version: int) -> None:
        self.remove_all([(client, version)])

    def remove_all(self, named: Iterable[tuple[str, int]]) -> None:
        """Remove these (client, version)."""
        self.storage.remove(*(self.name(client, version) for client, version in named))

    def adopt(self, other: ClientStore, named: Iterable[tuple[str, int]]) -> None:
        """Take over these (client, version) from another store.

        Stores on one disk share files by links, since a version is never written again.
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
            self.storage.write(name, other.storage.read(name))

    def keep_only(self, named: set[tuple[str, int]]) -> None:
        """Remove all versions but these (client, version), and the remains of writers that were killed."""
        kept = {self.name(client, version) for client, version in named}
        self.storage.remove(
            *(name for name in self.storage.files() if name.endswith((".pt", ".tmp")) and name not in kept)
        )


def folder_name(client: str) -> str:
    """The client's id where it is a valid file name, else a readable prefix and a hash."""
    if re.fullmatch(r"\w[\w.=@#+-]{0,99}", client, flags=re.ASCII):
        return client
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', client)[:40]}-{hashlib.blake2b(client.encode(), digest_size=8).hexdigest()}"
