"""Metrics that add: every value is a sum and a count, so that any split of the data gives the same pooled figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

ALONE = "_alone"  # ends the name of a client's own score that was taken without what is its own, such as its memory


class Metrics(Mapping[str, float]):
    """Name -> sum / count. `Metrics(wer=(errors, words)) + Metrics(...)` pools them; the federated WER is sum(errors) / sum(words).

    A ratio that is reported in percent has 100 * errors as its sum. A name of the form `name|part` is one part of `name`, which is the
    plain mean of its parts' ratios, each pooled for itself; parts of count 0 do not count: macro-F1 has one part a class.
    """

    def __init__(self, /, **values: tuple[float, float]) -> None:
        self.values_: dict[str, tuple[float, float]] = {name: (float(total), float(count)) for name, (total, count) in values.items()}

    @classmethod
    def of(cls, values: Mapping[str, tuple[float, float]]) -> Metrics:
        return cls(**dict(values))

    def __getitem__(self, name: str) -> float:
        total, count = self.total(name)
        return total / count if count else float("nan")

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.partition("|")[0] for name in self.values_))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __add__(self, other: Metrics) -> Metrics:
        merged = dict(self.values_)
        for name, (total, count) in other.values_.items():
            before = merged.get(name, (0.0, 0.0))
            merged[name] = (before[0] + total, before[1] + count)
        return Metrics.of(merged)

    def total(self, name: str) -> tuple[float, float]:
        """(sum, count): of what has parts, the sum of their ratios and their number."""
        if name in self.values_:
            return self.values_[name]
        parts = [pair for key, pair in self.values_.items() if key.startswith(f"{name}|") and pair[1]]
        if not parts and name not in iter(self):
            raise KeyError(name)
        return math.fsum(total / count for total, count in parts), len(parts)

    def prefixed(self, prefix: str) -> Metrics:
        """`wer` -> `dev/wer`."""
        return Metrics.of({f"{prefix}/{name}": value for name, value in self.values_.items()})

    def __repr__(self) -> str:
        return "Metrics(" + ", ".join(f"{name}={self[name]:.4g}" for name in self) + ")"
