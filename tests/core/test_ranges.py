"""Settings check the ranges in their types whoever builds them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from fedray.core.ranges import Count, Minority, Part, Positive, Ranged, one_of


@dataclass(frozen=True)
class Settings(Ranged):
    share: Part = 0.0
    rate: Positive | None = None
    sizes: tuple[Count, ...] = (1,)
    lanes: str | Count = "auto"
    few: Minority = 0.1
    name: str = ""
    order: str = one_of(("sorted", "random"))
    unit: str = one_of(("ms", "s", "min"), "s")


@pytest.mark.parametrize("inside", [{"share": 0.5}, {"rate": 1e-9}, {"sizes": (1, 2)}, {"lanes": 3}, {"few": 0}])
def test_numbers_inside_their_ranges(inside: dict) -> None:
    assert replace(Settings(), **inside)


@pytest.mark.parametrize(
    ("outside", "words"),
    [
        ({"share": 1.0}, "share must be at least 0 and below 1, not 1.0"),
        ({"rate": 0.0}, "rate must be above 0, not 0.0"),
        ({"rate": float("nan")}, "rate must be above 0, not nan"),
        ({"sizes": (1, 0)}, "sizes must be at least 1, not 0"),
        ({"lanes": 0}, "lanes must be at least 1, not 0"),
        ({"few": 0.5}, "few must be at least 0 and below 0.5, not 0.5"),
    ],
)
def test_a_number_outside_its_range(outside: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(Settings(), **outside)


def test_words_that_are_known_and_their_defaults() -> None:
    assert (Settings().order, Settings().unit) == ("sorted", "s")
    assert replace(Settings(), order="random", unit="min")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"order": "any"}, "order must be sorted or random, not 'any'"),
        ({"unit": "h"}, "unit must be one of ms, s, min, not 'h'"),
    ],
)
def test_a_word_that_is_not_known(wrong: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(Settings(), **wrong)
