"""Metrics that add: every value is a sum and a count, so that any split of the data gives the same pooled figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Metrics(Mapping[str, float]):
    """Name -> sum / count. `Metrics(wer=(errors, words)) + Metrics(...)` pools them; the federated WER is sum(errors) / sum(words).

    A ratio that is reported in percent has 100 * errors as its sum.
    """

    def __init__(self, /, **values: tuple[float, float]) -> None:
        self.values_: dict[str, tuple[float, float]] = {name: (float(total), float(count)) for name, (total, count) in values.items()}

    @classmethod
    def of(cls, values: Mapping[str, tuple[float, float]]) -> Metrics:
        return cls(**dict(values))

    def __getitem__(self, name: str) -> float:
        total, count = self.values_[name]
        return total / count if count else float("nan")

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)

    def __add__(self, other: Metrics) -> Metrics:
        merged = dict(self.values_)
        for name, (total, count) in other.values_.items():
            before = merged.get(name, (0.0, 0.0))
            merged[name] = (before[0] + total, before[1] + count)
        return Metrics.of(merged)

    def total(self, name: str) -> tuple[float, float]:
        """(sum, count)."""
        return self.values_[name]

    def prefixed(self, prefix: str) -> Metrics:
        """`wer` -> `dev/wer`."""
        return Metrics.of({f"{prefix}/{name}": value for name, value in self.values_.items()})

    def __repr__(self) -> str:
        return "Metrics(" + ", ".join(f"{name}={self[name]:.4g}" for name in self) + ")"
