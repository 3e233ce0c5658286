"""Utterances with their features, and batches of them: one padded allocation a batch, utterances of like length together."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from fedray.data.features import FeatureStore
from fedray.data.joined import JoinedFeatures
from fedray.data.manifest import Manifest

POOL = 8  # batches: lengths are sorted within pools of so many, so that batches are tight and still differ from epoch to epoch


class Utterances:
    """Rows of a manifest with their features: what a client, the server or a test set holds. Positions count from 0 within it."""

    def __init__(
        self, manifest: Manifest, features: FeatureStore | JoinedFeatures, rows: np.ndarray, labelled: np.ndarray | None = None
    ) -> None:
        """`labelled`: bool, one a row; None: nothing is said of labels."""
        self.manifest = manifest
        self.features = features
        self.rows = np.asarray(rows, dtype=np.int64)
        self.labelled = labelled
        self.lengths: np.ndarray = features.frames[self.rows]  # int64 [len], frames
        assert (self.lengths > 0).all(), "rows of broken audio must be left out (FeatureStore.broken)"

    def __len__(self) -> int:
        return len(self.rows)

    def __getstate__(self) -> dict[str, Any]:
        # Without the columns that were read here: each process reads those it needs.
        return {name: self.__dict__[name] for name in ("manifest", "features", "rows", "labelled", "lengths")}

    def take(self, positions: np.ndarray) -> Utterances:
        """The utterances at these positions (not rows of the manifest), in this order."""
        return Utterances(self.manifest, self.features, self.rows[positions], None if self.labelled is None else self.labelled[positions])

    @property
    def unlabelled(self) -> np.ndarray:
        """The positions, ascending, that are not labelled: all where nothing is said of labels."""
        return np.arange(len(self)) if self.labelled is None else np.flatnonzero(~self.labelled)

    @functools.cached_property
    def _own(self) -> Manifest:
        return self.manifest.take(self.rows)

    def column(self, name: str) -> list[Any]:
        """A column of the manifest."""
        return self._own.column(name)

    def distinct(self, name: str) -> list[str]:
        """The different values in a column of texts, sorted; null is none."""
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
    def seconds(self) -> np.ndarray:
        """Length of the audio in seconds by the manifest, float64 [len]."""
        return self._own.array("seconds")


def codes(manifest: Manifest, name: str, values: Sequence[str]) -> np.ndarray:
    """For every row the position of its value among `values`, int64 [rows]; -1 where it is none of them, or null."""
    found = pc.index_in(manifest.table[name].combine_chunks(), value_set=pa.array(values, manifest.table.schema.field(name).type))
    return found.fill_null(-1).to_numpy().astype(np.int64)


@dataclass(frozen=True)
class Batch:
    features: torch.Tensor  # float32 [batch, frames, bins], padded with zeros
    lengths: torch.Tensor  # int64 [batch], frames
    positions: np.ndarray  # int64 [batch], positions within the Utterances: targets are looked up by them

    def __len__(self) -> int:
        return len(self.positions)

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.features.to(device), self.lengths.to(device), self.positions)


def batches(utterances: Utterances, size: int, generator: np.random.Generator | None) -> Iterator[Batch]:
    """All utterances once, `size` a batch.

    With a generator (training): shuffled, sorted by length within pools of a few batches, and the batches shuffled again.
    Without (evaluation): sorted by length, ties by position, always the same.
    """
    if generator is None:
        order = np.argsort(utterances.lengths, kind="stable")
        groups = [order[start : start + size] for start in range(0, len(order), size)]
    else:
        groups = _shuffled_groups(utterances.lengths, size, generator)
    for positions in groups:
        yield collate(utterances, positions)


def collate(utterances: Utterances, positions: np.ndarray) -> Batch:
    """One batch of the utterances at these positions."""
    rows, lengths = utterances.rows[positions], utterances.lengths[positions]
    store = utterances.features
    padded = np.zeros((len(rows), int(lengths.max()), store.bins), dtype=np.float16)
    for place, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        padded[place, :length] = store[row]
    # torch widens float16 seven times faster than numpy does.
    return Batch(torch.from_numpy(padded).float(), torch.from_numpy(lengths), positions)


def shard(utterances: Utterances, index: int, count: int) -> Utterances:
    """Part `index` of `count` for evaluation: dealt round-robin from the order by length, so parts are alike in work. May be empty."""
    order = np.argsort(utterances.lengths, kind="stable")
    return utterances.take(order[index::count])


def shards(utterances: Utterances, count: int) -> list[Utterances]:
    """The utterances in `count` parts (see `shard`); always the same."""
    return [shard(utterances, index, count) for index in range(count)]


def _shuffled_groups(lengths: np.ndarray, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    order = generator.permutation(len(lengths))
    for start in range(0, len(order), POOL * size):
        pool = order[start : start + POOL * size]
        order[start : start + POOL * size] = pool[np.argsort(lengths[pool], kind="stable")]
    # The incomplete batch stands at a random place: always last, it would always hold the longest utterances.
    full, rest = divmod(len(order), size)
    sizes = generator.permutation([size] * full + [rest] * (rest > 0))
    groups = np.split(order, np.cumsum(sizes)[:-1]) if len(order) else []
    return [groups[index] for index in generator.permutation(len(groups))]
