"""Means over utterances."""

from __future__ import annotations

from fedray.core.metrics import Metrics
from fedray.data.manifest import Mask, Rows


class Mean:
    """The mean over utterances, from the means of batches."""

    def __init__(self) -> None:
        self._total, self._count = 0.0, 0

    def add(self, mean: float, count: int, zeros: int = 0) -> None:
        """Add a mean over `count` values, of which `zeros` are 0 and do not count."""
        self._total += mean * count
        self._count += count - zeros

    def value(self) -> float:
        """The mean; 0 without values."""
        return self._total / max(1, self._count)

    def pair(self) -> tuple[float, float]:
        """(sum, count), as `Metrics` holds a value."""
        return self._total, self._count


class MeanLoss(Mean):
    """The mean training loss. An utterance that cannot be learnt has loss 0, and does not count."""

    def __init__(self, unlearnable: Mask | None) -> None:
        """`unlearnable`: bool [utterances]; None: all can be learnt."""
        super().__init__()
        self.unlearnable = unlearnable

    def add_batch(self, mean: float, positions: Rows) -> None:
        """Add the mean over a batch of the utterances at these positions."""
        lost = 0 if self.unlearnable is None else int(self.unlearnable[positions].sum())
        self.add(mean, len(positions), lost)

    def metrics(self) -> Metrics:
        """`loss`, and `unlearnable`, the share of the utterances that cannot be learnt (if the task knows it)."""
        loss = Metrics(loss=self.pair())
        if self.unlearnable is None:
            return loss
        return loss + Metrics(unlearnable=(int(self.unlearnable.sum()), len(self.unlearnable)))
