"""FedNST that misbehaves on demand: `imports: [tests.faulty]`, `algorithm: {kind: faulty, trouble: FILE}`.

While the file exists, each of its lines is a misdeed: what, which client (or `all`), in which round (0: in every one),
as in `nan s02 2`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedray.algorithms import ALGORITHMS
from fedray.algorithms.fednst import FedNST, FedNSTSettings
from fedray.core.types import Change, Client, Layer, Received, ServerState, Update


@dataclass(frozen=True)
class FaultySettings(FedNSTSettings):
    trouble: str = ""  # the file of misdeeds


class Faulty(FedNST):
    Settings = FaultySettings
    settings: FaultySettings

    def misdeeds(self, who: str, round: int) -> list[str]:
        file = Path(self.settings.trouble)
        lines = [line.split() for line in file.read_text().splitlines()] if file.is_file() else []
        return [what for what, client, when in lines if client in (who, "all") and int(when) in (round, 0)]

    def layers(self) -> Sequence[Layer]:  # called when an actor starts
        if "start" in self.misdeeds("actor", 0):
            raise FileNotFoundError("/models/lexicon.txt is not on this machine")
        return super().layers()

    def client_update(self, client: Client, received: Received) -> Update:
        misdeeds = self.misdeeds(client.id, received.round + 1)
        if "slow" in misdeeds:
            time.sleep(0.5)
        while "wait" in self.misdeeds(client.id, received.round + 1):
            time.sleep(0.1)
        for what in ("hang-once", "memory-once"):
            if what in misdeeds:
                Path(self.settings.trouble).unlink()
        if "hang-once" in misdeeds:
            os.kill(os.getpid(), signal.SIGSTOP)
        if "memory-once" in misdeeds:
            raise MemoryError("Unable to allocate 96. GiB for an array")
        if "raise" in misdeeds:
            raise LookupError(f"no microphone on {client.id}")
        if "die-once" in misdeeds:
            Path(self.settings.trouble).unlink()
        if "die" in misdeeds or "die-once" in misdeeds:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is short
        update = super().client_update(client, received)
        for what, number in (("nan", np.nan), ("inf", np.inf)):
            if what in misdeeds:
                delta = update.delta.copy()
                delta[7] = number
                update = replace(update, delta=delta)
        return update

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        if "fill" in self.misdeeds("disk", round + 1):
            with (
                (Path(self.settings.trouble).parent / "disk" / "filler").open("ab", buffering=0) as file,
                suppress(OSError),
            ):
                while True:
                    file.write(bytes(4096))
        return super().server_update(state, change, round)


ALGORITHMS["faulty"] = Faulty
