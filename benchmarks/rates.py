"""The choice of a learning rate by a score on dev."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import study


def tune(
    rates: Sequence[float],
    first: slice,
    score: Callable[[float], float],
    best: Callable[..., Any] = max,
    known: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The score of each rate that is tried: the `first`, then the best one's neighbours, until all of them are known.

    `rates` rise. `best`: max or min of the scores. `known`: scores of earlier trials, by rate as `f"{rate:g}"`, whose
    best one's neighbours are tried too.
    """
    tried = {rate: known[f"{rate:g}"] for rate in rates if known and f"{rate:g}" in known}
    missing = [rate for rate in rates[first] if rate not in tried]
    while True:
        tried |= {rate: score(rate) for rate in missing}
        at = rates.index(best(tried, key=tried.__getitem__))
        missing = [rate for rate in rates[max(0, at - 1) : at + 2] if rate not in tried]
        if not missing:
            break
    return {f"{rate:g}": tried[rate] for rate in sorted(tried)}


def best_of(tried: Mapping[str, float], best: Callable[..., Any] = max) -> float:
    """The rate with the best score among the scores of `tune`. `best`: max or min."""
    return float(best(tried, key=tried.__getitem__))


def table(rates: Sequence[float], tuned: Mapping[str, Mapping[str, float]]) -> str:
    """A row for each arm: its scores by rate. `tuned`: arm -> the scores of `tune`."""
    return study.table(
        [{"arm": arm} | {f"{rate:g}": tried.get(f"{rate:g}", "") for rate in rates} for arm, tried in tuned.items()]
    )
