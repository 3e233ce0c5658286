"""A toy algorithm that waits in its second round, so that a test can stop the run there."""

from __future__ import annotations

import time
from pathlib import Path

from fedray.core.types import Client, Received, Update
from tests.engine import toys


def appears(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} has not appeared"
        time.sleep(0.05)


class Waiting(toys.Toy):
    """A toy whose clients wait for the file `go` in the second round."""

    def client_update(self, client: Client, received: Received) -> Update:
        if received.round == 1:
            (Path(self.settings.folder) / "waits").touch()
            appears(Path(self.settings.folder) / "go")
        return super().client_update(client, received)
