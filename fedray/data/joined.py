"""Two feature stores read as one, so that data which are pooled are not computed, nor kept, twice."""

from __future__ import annotations

import functools

import numpy as np

from fedray.data.features import FeatureStore


class JoinedFeatures:
    """The rows of one store, then those of another, with the face of a FeatureStore. Pickles as the two do: as paths and names."""

    def __init__(self, first: FeatureStore, second: FeatureStore) -> None:
        assert first.bins == second.bins
        self.first, self.second = first, second

    def __reduce__(self) -> tuple[type[JoinedFeatures], tuple[FeatureStore, FeatureStore]]:
        return JoinedFeatures, (self.first, self.second)

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, row: int) -> np.ndarray:
        """float16 [frames, bins], a read-only view of a file."""
        here = len(self.first)
        return self.first[row] if row < here else self.second[row - here]

    @property
    def name(self) -> str:
        return f"{self.first.name}+{self.second.name}"

    @property
    def bins(self) -> int:
        return self.first.bins

    @functools.cached_property
    def frames(self) -> np.ndarray:
        """int64 [rows]."""
        return np.concatenate([self.first.frames, self.second.frames])
