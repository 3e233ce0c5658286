"""FedSTAR's division (section 5.3; NOTES.md): parts dealt at random in uneven sizes, and a few labels a client (table 5)."""

from __future__ import annotations

import numpy as np


def sizes(total: int, count: int, spread: float, generator: np.random.Generator) -> np.ndarray:
    """int64 [count], their sum `total`: each its mean (1 +- spread), to a whole number above or below; none 0 where `total` suffices.

    Drawn evenly, less their mean; where one would then leave its bounds, all come so much nearer to the mean.
    """
    deviations = generator.uniform(-spread, spread, count)
    deviations -= deviations.mean()
    furthest = np.abs(deviations).max()
    exact = total / count * (1 + deviations * min(1.0, spread / furthest if furthest else 1.0))
    found: np.ndarray = np.floor(exact).astype(np.int64)
    found[np.argsort(found - exact, kind="stable")[: total - found.sum()]] += 1  # what is left goes to the largest fractions
    while total >= count and found.min() == 0:
        found[np.argmax(found)] -= 1
        found[np.argmin(found)] += 1
    return found


def dealt(total: int, count: int, spread: float, generator: np.random.Generator) -> np.ndarray:
    """Whose each of so many utterances is, int64 [total]: numbers below `count`, at random, each as often as `sizes` says."""
    return generator.permutation(np.repeat(np.arange(count), sizes(total, count, spread, generator)))


def dealt_by_label(
    codes: np.ndarray, labels: int, count: int, mean: float, labels_spread: float, spread: float, generator: np.random.Generator
) -> np.ndarray:
    """The same where each client has utterances of a few labels only: `codes` are the labels' numbers, int64 [total].

    A client's number of labels is drawn evenly from mean (1 +- labels_spread) and rounded. It takes those that fewest have taken so far,
    at random among equals, so that no label is nobody's; a label's utterances are dealt to those who have it, unevenly by `spread`.
    """
    if not mean >= 1:
        raise ValueError(f"data.clients.labels: {mean} is a number of labels a client, at least 1")
    if not 0 <= labels_spread < 1:
        raise ValueError(f"data.clients.labels_spread: {labels_spread} is a share of data.clients.labels, from 0 to below 1")
    numbers = np.rint(mean * (1 + generator.uniform(-labels_spread, labels_spread, count))).astype(int).clip(1, labels)
    if numbers.sum() < labels:
        raise ValueError(
            f"data.clients.labels: {count} clients with {numbers.sum()} labels together cannot have all {labels}: raise it, or count"
        )
    holders: list[list[int]] = [[] for _ in range(labels)]
    for client in range(count):
        mixed = generator.permutation(labels)
        fewest = mixed[np.argsort([len(holders[label]) for label in mixed], kind="stable")]
        for label in fewest[: numbers[client]]:
            holders[label].append(client)
    place = np.empty(len(codes), np.int64)
    for label, who in enumerate(holders):
        rows = np.flatnonzero(codes == label)
        place[rows] = generator.permutation(who)[dealt(len(rows), len(who), spread, generator)]
    return place
