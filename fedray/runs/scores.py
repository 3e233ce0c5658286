"""The scores in a results.json: those of the seed model beside those of the best round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def with_unit(name: str) -> str:
    """A metric's name, with the unit of error rates."""
    return f"{name} (%)" if name.rpartition("/")[2].startswith(("wer", "cer")) else name


@dataclass(frozen=True)
class Score:
    """A metric of the seed model, which is the model before the first round, and of the best round."""

    name: str
    seed: float
    best: float

    @property
    def title(self) -> str:
        return with_unit(self.name)

    @property
    def change(self) -> str:
        """The relative change; empty where the seed model's score is 0."""
        return f"{100 * (self.best - self.seed) / self.seed:+.1f} %" if self.seed else ""


def scores(results: Mapping[str, Any]) -> list[Score]:
    """The scores in the content of a results.json."""
    best, seed = results["best"], results["seed"]
    return [Score(name, seed[name], best[name]) for name in best if name != "round"]
