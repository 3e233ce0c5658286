"""Client states on disk, in versions: a new version becomes current only with the checkpoint that names it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from fedray.core import serialize
from fedray.core.types import State


class ClientStore:
    """`<folder>/<client>/<version>.pt`; the version is the number of rounds done when the round that wrote it was over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, client: str, version: int) -> Path:
        return self.folder / folder_name(client) / f"{version:06d}.pt"

    def load(self, client: str, version: int) -> State:
        return serialize.load(self.path(client, version))

    def save(self, client: str, version: int, state: State) -> None:
        path = self.path(client, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        serialize.save(state, path)

    def remove(self, client: str, version: int) -> None:
        self.path(client, version).unlink(missing_ok=True)

    def keep_only(self, named: set[tuple[str, int]]) -> None:
        """Remove every version that is not among these (client, version): leftovers of rounds that were not committed."""
        kept = {self.path(client, version) for client, version in named}
        for path in self.folder.glob("*/*.pt"):
            if path not in kept:
                path.unlink()


def folder_name(client: str) -> str:
    """The client's id where it can stand in a path, else a readable beginning and a hash."""
    if re.fullmatch(r"\w[\w.=@#+-]{0,99}", client, flags=re.ASCII):
        return client
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', client)[:40]}-{hashlib.blake2b(client.encode(), digest_size=8).hexdigest()}"
