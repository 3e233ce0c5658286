"""Metrics as pairs of a sum and a count. Pairs add up, so any division of the data gives the same pooled value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from fedray.core import ngram_scores
from fedray.core.ngram_scores import Parts

# The suffix of a personal score that was measured without the personal part of the model, such as the client's memory.
ALONE = "_alone"

# A word in a metric's name -> the rule that computes the value from the pooled parts; without a rule, their plain mean.
RULES: Mapping[str, Callable[[Parts], float]] = {"bleu": ngram_scores.bleu, "chrf": ngram_scores.chrf}
RISING = ("accuracy", "f1")  # endings of metrics in percent where larger is better


def rising(metric: str) -> bool:
    """Whether larger values of the metric are better: accuracy, F1, BLEU, chrF."""
    return metric.endswith(RISING) or of_translations(metric)


def of_translations(metric: str) -> bool:
    """Whether the metric is BLEU or chrF."""
    return not RULES.keys().isdisjoint(metric.rpartition("/")[2].split("_"))


class Metrics(Mapping[str, float]):
    """Name -> sum / count. `Metrics(wer=(errors, words)) + Metrics(...)` pools two sets of metrics.

    The federated WER is sum(errors) / sum(words). A ratio in percent has 100 * errors as its sum. A name `name|part` is
    a part of `name`: each part is pooled separately, and `name` is the plain mean of its parts' ratios, without parts
    of count 0. Macro-F1 has one part for each class. For a metric in `RULES`, a rule computes the value from the parts:
    BLEU (`bleu`, `dev/bleu_beam`) from counts of n-grams.
    """

    def __init__(self, /, **values: tuple[float, float]) -> None:
        self.values_: dict[str, tuple[float, float]] = {}
        for name, pair in values.items():
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise TypeError(f"Metrics: {name} must be a pair (sum, count), not {pair!r}, such as (value, 1)")
            self.values_[name] = (float(pair[0]), float(pair[1]))

    @classmethod
    def of(cls, values: Mapping[str, tuple[float, float]]) -> Metrics:
        """Metrics from name -> (sum, count)."""
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
        """The (sum, count) of a metric. KeyError: there is no such metric.

        With parts: the sum of the parts' ratios, and the number of parts with a count above 0. With a rule: (value, 1).
        """
        if name in self.values_:
            return self.values_[name]
        if name not in iter(self):
            raise KeyError(name)
        of_name = {key[len(name) + 1 :]: pair for key, pair in self.values_.items() if key.startswith(f"{name}|")}
        words = name.rpartition("/")[2].split("_")
        if (rule := next((RULES[word] for word in words if word in RULES), None)) is not None:
            return rule(of_name), 1.0
        parts = [pair for pair in of_name.values() if pair[1]]
        return math.fsum(total / count for total, count in parts), len(parts)

    def prefixed(self, prefix: str) -> Metrics:
        """The same metrics with a prefix and a slash before their names: `wer` becomes `dev/wer`."""
        return self.renamed(f"{prefix}/")

    def renamed(self, before: str) -> Metrics:
        """The same metrics with `before` in front of their names."""
        return Metrics.of({f"{before}{name}": value for name, value in self.values_.items()})

    def __repr__(self) -> str:
        return "Metrics(" + ", ".join(f"{name}={self[name]:.4g}" for name in self) + ")"
