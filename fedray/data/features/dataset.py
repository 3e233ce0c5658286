"""Utterances with their features, and batches of them.

A batch is one padded array; its utterances have similar lengths.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from fedray.data.features.joined import Features
from fedray.data.features.settings import SCALES
from fedray.data.manifest import Manifest, Mask, Rows

# Utterances are sorted by length within pools of this many batches: batches have little padding, and still differ from
# epoch to epoch.
POOL = 8


class Utterances:
    """The data of a client, of the server or of a test set: rows of a manifest with their features.

    A row is an index into the manifest, a position an index into these utterances.
    """

    def __init__(self, manifest: Manifest, features: Features, rows: Rows, labelled: Mask | None = None) -> None:
        """`rows`: int64 [utterances].

        `labelled`: bool [utterances]; None: the configuration does not say which are labelled.
        """
        self.manifest = manifest
        self.features = features
        self.rows = np.asarray(rows, dtype=np.int64)
        self.labelled = labelled
        self.lengths: Rows = features.frames[self.rows]  # frames of each utterance
        assert (self.lengths > 0).all(), "rows of broken audio must be left out (FeatureStore.broken)"

    def __len__(self) -> int:
        return len(self.rows)

    def __getstate__(self) -> dict[str, Any]:
        # Cached columns are left out: each process reads the columns that it needs.
        return {name: self.__dict__[name] for name in ("manifest", "features", "rows", "labelled", "lengths")}

    def take(self, positions: Rows) -> Utterances:
        """The utterances at these positions (not rows of the manifest), in this order."""
        labelled = None if self.labelled is None else self.labelled[positions]
        return Utterances(self.manifest, self.features, self.rows[positions], labelled)

    @property
    def unlabelled(self) -> Rows:
        """The positions of unlabelled utterances, ascending. Without `labelled` these are all positions."""
        return np.arange(len(self)) if self.labelled is None else np.flatnonzero(~self.labelled)

    @property
    def labelled_positions(self) -> Rows:
        """The positions of labelled utterances, ascending. Without `labelled` there are none."""
        return np.flatnonzero(self.labelled) if self.labelled is not None else np.arange(0)

    @functools.cached_property
    def _selected(self) -> Manifest:
        return self.manifest.take(self.rows)

    def column(self, name: str) -> list[Any]:
        """A column of the manifest for these utterances; null becomes None."""
        return self._selected.column(name)

    def distinct(self, name: str) -> list[str]:
        """The distinct values of a text column, sorted, without null."""
        return sorted(pc.unique(self.manifest.table[name].take(pa.array(self.rows))).drop_null().to_pylist())

    @functools.cached_property
    def ids(self) -> list[str]:
        return self.column("utterance")

    @functools.cached_property
    def speakers(self) -> list[str]:
        return self.column("speaker")

    @functools.cached_property
    def texts(self) -> list[str | None]:
        return self.column("text")

    @functools.cached_property
    def labels(self) -> list[str | None]:
        return self.column("label")

    @functools.cached_property
    def translations(self) -> list[str | None]:
        return self.column("translation")

    @functools.cached_property
    def seconds(self) -> npt.NDArray[np.float64]:
        """Length of the audio in seconds by the manifest, float64 [utterances]."""
        return self._selected.array("seconds")


def codes(manifest: Manifest, name: str, values: Sequence[str]) -> Rows:
    """The position of each row's value in `values`, int64 [rows]; -1 for null and for other values."""
    value_set = pa.array(values, manifest.table.schema.field(name).type)
    found: npt.NDArray[np.int32] = (
        pc.index_in(manifest.table[name].combine_chunks(), value_set=value_set).fill_null(-1).to_numpy()
    )
    return found.astype(np.int64)


@dataclass(frozen=True)
class Batch:
    """Padded features of some utterances."""

    features: torch.Tensor  # float32 [batch, frames, bins], padded with zeros
    lengths: torch.Tensor  # int64 [batch], frames of each utterance
    positions: Rows  # int64 [batch], positions in the Utterances, by which tasks look up targets

    def __len__(self) -> int:
        return len(self.positions)

    def to(self, device: torch.device | str) -> Batch:
        """Move the batch to a device; positions stay in NumPy."""
        return Batch(self.features.to(device), self.lengths.to(device), self.positions)


def batches(utterances: Utterances, size: int, generator: np.random.Generator | None) -> Iterator[Batch]:
    """Yield every utterance once, in batches of `size`.

    With a generator, for training: the utterances are shuffled, then sorted by length within pools of `POOL` batches,
    and the batches are shuffled. Without a generator, for evaluation: the utterances are sorted by length, ties by
    position.
    """
    if generator is None:
        order = np.argsort(utterances.lengths, kind="stable")
        groups = [order[start : start + size] for start in range(0, len(order), size)]
    else:
        groups = shuffled_groups(utterances.lengths, size, generator)
    for positions in groups:
        yield collate(utterances, positions)


def collate(utterances: Utterances, positions: Rows) -> Batch:
    """Make one batch of the utterances at these positions."""
    rows, lengths = utterances.rows[positions], utterances.lengths[positions]
    store = utterances.features
    padded = np.zeros((len(rows), int(lengths.max()), store.bins), dtype=store.stored)
    for place, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        padded[place, :length] = store[row]
    # torch converts float16 to float32 seven times faster than numpy does.
    features = torch.from_numpy(padded).float()
    if (scale := SCALES[store.stored]) != 1:
        features *= scale
    return Batch(features, torch.from_numpy(lengths), positions)


def shard(utterances: Utterances, index: int, count: int) -> Utterances:
    """Take part `index` of `count` for evaluation, possibly empty.

    Every `count`-th utterance by length, so parts take similar time.
    """
    order = np.argsort(utterances.lengths, kind="stable")
    return utterances.take(order[index::count])


def shuffled_groups(lengths: Rows, size: int, generator: np.random.Generator) -> list[Rows]:
    """The positions of each training batch of an epoch, as `batches` describes."""
    order = generator.permutation(len(lengths))
    for start in range(0, len(order), POOL * size):
        pool = order[start : start + POOL * size]
        order[start : start + POOL * size] = pool[np.argsort(lengths[pool], kind="stable")]
    # The incomplete batch gets a random place. In the last place it would always hold the longest utterances.
    full, rest = divmod(len(order), size)
    sizes = generator.permutation([size] * full + [rest] * (rest > 0))
    groups = [order[end - of : end] for of, end in zip(sizes, np.cumsum(sizes), strict=True)]
    return [groups[index] for index in generator.permutation(len(groups))]
