"""Two feature stores read as one, so that pooled data is neither computed nor stored twice."""

from __future__ import annotations

import functools

import numpy as np

from fedray.data.features.store import FeatureStore, Frames
from fedray.data.manifest import Rows


class JoinedFeatures:
    """The rows of the first store followed by the rows of the second, with the interface of a FeatureStore.

    A pickle holds the folders and names of both stores, not their features.
    """

    def __init__(self, first: FeatureStore | JoinedFeatures, second: FeatureStore | JoinedFeatures) -> None:
        assert (first.bins, first.stored) == (second.bins, second.stored)
        self.first, self.second = first, second

    def __reduce__(
        self,
    ) -> tuple[type[JoinedFeatures], tuple[FeatureStore | JoinedFeatures, FeatureStore | JoinedFeatures]]:
        return JoinedFeatures, (self.first, self.second)

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, row: int) -> Frames:
        """[frames, bins] as they are stored, a read-only view of a file."""
        size = len(self.first)
        return self.first[row] if row < size else self.second[row - size]

    @property
    def name(self) -> str:
        return f"{self.first.name}+{self.second.name}"

    @property
    def bins(self) -> int:
        return self.first.bins

    @property
    def stored(self) -> str:
        return self.first.stored

    @functools.cached_property
    def frames(self) -> Rows:
        """Frames of each row, int64 [rows]."""
        return np.concatenate([self.first.frames, self.second.frames])


Features = FeatureStore | JoinedFeatures
