"""Paired bootstrap intervals of pooled rates: what is resampled (speakers, utterances) is drawn with replacement, for all models alike.

Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation", ICASSP 2004.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 5000
LEVELS = (0.025, 0.975)
BLOCK = 500  # draws whose weights are widened to float64 at a time

# Unit that is resampled -> words and errors, or items and correct answers. A rate is 100 * sum of the second / sum of the first.
Counts = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Interval:
    """A mean over runs with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"


@dataclass(frozen=True)
class Change:
    """The change of a rate, mean over runs, with its 95 % interval; `runs` are each run's own."""

    mean: float
    low: float
    high: float
    runs: tuple[float, ...]
    unit: str  # "%": relative to before; "points": of the rate in percent

    def __str__(self) -> str:
        return f"{self.mean:+.1f} {self.unit} [{self.low:+.1f}, {self.high:+.1f}]"


def rate(runs: Sequence[Counts], seed: int = 0) -> Interval:
    """The rate in percent, mean over runs (seeds, splits)."""
    drawn = _draw([runs], seed)
    return _interval(np.nanmean(_percent(drawn[..., 1], drawn[..., 0]), axis=1))


def change(before: Sequence[Counts], after: Sequence[Counts], unit: str | None = "%", seed: int = 0) -> Change:
    """How much the rate of one or more runs (seeds, splits) changes; `before[i]` and `after[i]` are a pair.

    Take the unit "points" where a run may have had next to no errors before; None takes it when a draw has none at all.
    """
    drawn = _draw([before, after], seed)
    if unit is None:
        unit = "points" if np.any((drawn[..., 1] == 0) & (drawn[..., 0] > 0)) else "%"
    changes = _percent(drawn[..., 2] - drawn[..., 1], drawn[..., 1 if unit == "%" else 0])
    found = _interval(np.nanmean(changes, axis=1))
    return Change(found.mean, found.low, found.high, tuple(changes[0].tolist()), unit)


def recovered(seed_model: Sequence[Counts], reached: Sequence[Counts], reference: Sequence[Counts], seed: int = 0) -> Interval | None:
    """The share, in percent, of the reference's gain over the seed model that is reached: (seed - reached) / (seed - reference).

    Rates are means over runs before the division. None where the reference gains nothing, or not in all draws alike.
    """
    drawn = _draw([seed_model, reached, reference], seed)
    rates = np.nanmean(_percent(drawn[..., 1:], drawn[..., :1]), axis=1)
    gain = rates[:, 0] - rates[:, 2]
    if not (np.all(gain > 0) or np.all(gain < 0)):
        return None
    return _interval(100 * (rates[:, 0] - rates[:, 1]) / gain)


def paired(one: Counts, other: Counts) -> bool:
    """Whether both count the same units, of the same lengths."""
    return one.keys() == other.keys() and all(length == other[unit][0] for unit, (length, _) in one.items())


def _percent(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """NaN where the whole is 0: a run of which a draw holds no unit (its test set is another) has no say in that draw."""
    whole = np.broadcast_to(whole, part.shape)
    return np.divide(100 * part, whole, out=np.full(part.shape, np.nan), where=whole != 0)


def _interval(values: np.ndarray) -> Interval:
    """Of values [1 + DRAWS], the first of them that of the data as they are."""
    low, high = np.quantile(values[1:], LEVELS)
    return Interval(float(values[0]), float(low), float(high))


def _draw(groups: Sequence[Sequence[Counts]], seed: int) -> np.ndarray:
    """Sums [1 + DRAWS, runs, 1 + groups]: lengths, then what each group counted; first as they are, then of each draw of the units.

    A unit that is not in a run's test set counts nothing there. ValueError: the groups did not score the same units.
    """
    pairs = list(zip(*groups, strict=True))
    if not all(paired(one, other) for one, *others in pairs for other in others):
        raise ValueError("before and after must have scored the same units")
    units = sorted({unit for one, *_ in pairs for unit in one})
    if not units:
        raise ValueError("nothing was scored, so there is nothing to draw from")
    rows = [[_sums(pair, unit) for pair in pairs] for unit in units]
    table = np.array(rows, dtype=np.float64)  # [units, runs, 1 + groups]
    weights = _weights(len(units), seed)
    sums = [np.tensordot(weights[start : start + BLOCK].astype(np.float64), table, axes=1) for start in range(0, DRAWS, BLOCK)]
    return np.concatenate([table.sum(axis=0, keepdims=True), *sums])


def _sums(pair: Sequence[Counts], unit: str) -> list[int]:
    length = pair[0].get(unit, (0, 0))[0]
    return [length, *(counts.get(unit, (0, 0))[1] for counts in pair)]


@functools.lru_cache(maxsize=4)
def _weights(units: int, seed: int) -> np.ndarray:
    """How often each unit is drawn: uint16 [DRAWS, units], each row sums to `units`."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(units, np.full(units, 1 / units), size=DRAWS).astype(np.uint16)
