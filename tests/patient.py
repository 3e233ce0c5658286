"""A user's module for runs that tests end from outside: `imports: [tests.patient]`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedray.algorithms import ALGORITHMS
from fedray.algorithms.fedavg import FedAvg, FedAvgSettings
from fedray.core.parallel import Parallel
from fedray.core.types import Client, Received, Update
from fedray.data.corpora import CORPORA
from fedray.data.manifest import Manifest


@dataclass(frozen=True)
class PatientSettings(FedAvgSettings):
    gate: str = ""  # the second round waits for this file, and says so by making <gate>.waits
    seconds: float = 0.0  # how much longer a client takes


class Patient(FedAvg):
    """FedAvg whose clients wait in the second round, or in every one."""

    Settings = PatientSettings

    def client_update(self, client: Client, received: Received) -> Update:
        time.sleep(self.settings.seconds)
        if received.round == 1 and self.settings.gate:
            Path(f"{self.settings.gate}.waits").touch()
            while not Path(self.settings.gate).exists():
                time.sleep(0.05)
        return super().client_update(client, received)


@dataclass(frozen=True)
class Endless:
    """A corpus that takes forever to make."""

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        made: Iterator[Any] = parallel(time.sleep, [0, *[3600] * 10], "making")
        list(made)
        raise AssertionError("it cannot be made")


ALGORITHMS["patient"] = Patient
CORPORA["endless"] = Endless
