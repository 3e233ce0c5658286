"""The scalars of a run for TensorBoard, in a run folder on a disk or in a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.summary import scalar

from fedray.engine.telemetry.tracking import finite
from fedray.runs.folder import RunFolder
from fedray.storage.files import faults

FOLDER = "tensorboard"
ROLL = 2000  # scalars per file in a bucket, about 100 kB: each round uploads the newest file again


class Scalars:
    """Writes the scalars of rounds. In a bucket they are in files of bounded size, which TensorBoard reads as one."""

    def __init__(self, folder: RunFolder, round: int) -> None:
        """`round`: rounds done; TensorBoard drops what it has of later ones."""
        self.folder = folder
        self._count = 0
        self._writer = self._open(round + 1, purge_step=round + 1)

    def write(self, values: Mapping[str, Any], step: int) -> dict[str, float]:
        """Write the finite numbers among the values; returns them."""
        scalars = finite(values)
        if self.folder.root is None and self._count >= ROLL:
            self.close()
            for file in self.folder.scratch(FOLDER).iterdir():  # it has been uploaded
                file.unlink()
            self._count, self._writer = 0, self._open(step)
        row = Summary()  # one event for all, since each event passes through a queue
        for key, value in scalars.items():
            row.MergeFrom(scalar(key, value))
        with self._faults():
            self._writer.file_writer.add_summary(row, step)
            self._writer.flush()
        self._count += len(scalars)
        self.folder.publish(FOLDER)
        return scalars

    def close(self) -> None:
        with self._faults():
            self._writer.close()
        self.folder.publish(FOLDER)

    def _open(self, step: int, **options: int) -> SummaryWriter:
        # Files begun within the same second have names that differ by their first step, and are read in that order.
        with self._faults():
            return SummaryWriter(str(self.folder.scratch(FOLDER)), filename_suffix=f".{step:08d}", **options)

    def _faults(self) -> AbstractContextManager[None]:
        return faults(self.folder.storage.shown(FOLDER))
