"""FedSTAR's partition (section 5.3): random parts of uneven size, and few labels per client (table 5)."""

from __future__ import annotations

import numpy as np

from fedray.data.manifest import Rows


def sizes(total: int, count: int, spread: float, generator: np.random.Generator) -> Rows:
    """Draw the sizes of `count` parts, int64 [count], which sum to `total`.

    A size lies within mean * (1 +- spread), rounded. No part is empty if `total` >= `count`. Deviations from the
    mean are drawn uniformly and centred. If centring moves one beyond `spread`, all deviations shrink by the same
    factor.
    """
    deviations = generator.uniform(-spread, spread, count)
    deviations -= deviations.mean()
    furthest = np.abs(deviations).max()
    exact = total / count * (1 + deviations * min(1.0, spread / furthest if furthest else 1.0))
    rounded: Rows = np.floor(exact).astype(np.int64)
    rounded[np.argsort(rounded - exact, kind="stable")[: total - rounded.sum()]] += 1  # the largest fractions round up
    while total >= count and rounded.min() == 0:
        rounded[np.argmax(rounded)] -= 1
        rounded[np.argmin(rounded)] += 1
    return rounded


def dealt(total: int, count: int, spread: float, generator: np.random.Generator) -> Rows:
    """Deal `total` utterances to `count` clients at random: the client of each utterance, int64 [total].

    `sizes` draws the shares.
    """
    return generator.permutation(np.repeat(np.arange(count), sizes(total, count, spread, generator)))


def dealt_by_label(
    codes: Rows,
    labels: int,
    count: int,
    mean: float,
    labels_spread: float,
    spread: float,
    generator: np.random.Generator,
) -> Rows:
    """Deal utterances so that each client has few labels: the client of each utterance, int64 [total].

    `codes`: the label of each utterance, int64 [total], in 0..labels - 1. A client's number of labels is drawn
    uniformly from mean * (1 +- labels_spread) and rounded. A client takes the labels with the fewest clients so far, at
    random among equals, so every label has a client. The utterances of a label are dealt to its clients in uneven parts
    by `spread`.

    Raises ValueError if the clients cannot have all labels.
    """
    if not mean >= 1:
        raise ValueError(f"data.clients.labels: {mean} is not a mean number of labels for each client: set at least 1")
    if not 0 <= labels_spread < 1:
        raise ValueError(
            f"data.clients.labels_spread: {labels_spread} is not a share of data.clients.labels, from 0 to below 1"
        )
    numbers = np.rint(mean * (1 + generator.uniform(-labels_spread, labels_spread, count))).astype(int).clip(1, labels)
    if numbers.sum() < labels:
        raise ValueError(
            f"data.clients.labels: {count} clients with {numbers.sum()} labels in total cannot have all {labels} "
            "labels: raise data.clients.labels or data.clients.count"
        )
    clients_of: list[list[int]] = [[] for _ in range(labels)]
    for client in range(count):
        mixed = generator.permutation(labels)
        fewest = mixed[np.argsort([len(clients_of[label]) for label in mixed], kind="stable")]
        for label in fewest[: numbers[client]]:
            clients_of[label].append(client)
    place = np.empty(len(codes), np.int64)
    for label, clients in enumerate(clients_of):
        rows = np.flatnonzero(codes == label)
        place[rows] = generator.permutation(clients)[dealt(len(rows), len(clients), spread, generator)]
    return place
