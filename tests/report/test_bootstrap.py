"""Intervals equal those of a loop that draws one unit after the other, and values known in advance."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu import corpus_bleu

from fedray.data.text.translation_scores import bleu_counts
from fedray.report import bootstrap
from fedray.report.bootstrap import Counts, change, rate, recovered

ANN: Counts = {"ann": (10, 5), "bob": (20, 4), "cid": (5, 5)}
BETTER: Counts = {"ann": (10, 4), "bob": (20, 2), "cid": (5, 1)}
OTHER: tuple[Counts, Counts] = (
    {"ann": (8, 4), "dee": (9, 3)},
    {"ann": (8, 1), "dee": (9, 3)},
)  # a run with another test set


def drawn(units: list[str]) -> list[dict[str, int]]:
    """Return how often each unit is drawn; the draws are those of the module."""
    weights = np.random.default_rng(0).multinomial(
        len(units), np.full(len(units), 1 / len(units)), size=bootstrap.DRAWS
    )
    return [dict(zip(units, row, strict=True)) for row in weights.tolist()]


def sums(counts: Counts, weights: dict[str, int]) -> tuple[int, int]:
    words = errors = 0
    for unit, (length, wrong) in counts.items():
        for _ in range(weights.get(unit, 0)):
            words, errors = words + length, errors + wrong
    return words, errors


def test_a_change_is_that_of_a_loop() -> None:
    expected = [(sums(BETTER, w)[1] - sums(ANN, w)[1]) / sums(ANN, w)[1] * 100 for w in drawn(["ann", "bob", "cid"])]
    found = change([ANN], [BETTER])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])))
    assert found.mean == found.runs[0] == pytest.approx((7 - 14) / 14 * 100) and found.unit == "%"


def test_two_runs_are_drawn_alike_and_one_that_a_draw_leaves_nothing_of_has_no_say_in_it() -> None:
    pairs, expected = [(ANN, BETTER), OTHER], []
    draws = drawn(["ann", "bob", "cid", "dee"])
    for weights in draws:
        each = []
        for before, after in pairs:
            words, errors = sums(before, weights)
            each += [100 * (sums(after, weights)[1] - errors) / words] if words else []
        expected.append(sum(each) / len(each))
    assert any(not sums(OTHER[0], weights)[0] for weights in draws)
    found = change([ANN, OTHER[0]], [BETTER, OTHER[1]], "points")
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])))
    assert found.runs == pytest.approx((-100 * 7 / 35, -100 * 3 / 17)) and found.mean == pytest.approx(
        sum(found.runs) / 2
    )


def test_a_rate_and_its_interval() -> None:
    expected = [
        100 * errors / words for words, errors in (sums(ANN, weights) for weights in drawn(["ann", "bob", "cid"]))
    ]
    found = rate([ANN])
    assert found.mean == pytest.approx(100 * 14 / 35)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])))


def test_the_share_of_a_gain() -> None:
    half: Counts = {unit: (length, wrong - (wrong - BETTER[unit][1]) // 2) for unit, (length, wrong) in ANN.items()}
    found = recovered([ANN], [half], [ANN], [BETTER])
    gained = sum(wrong for _, wrong in ANN.values()) - sum(wrong for _, wrong in half.values())
    assert found is not None and found.mean == pytest.approx(100 * gained / 7)
    everything = recovered([ANN], [BETTER], [ANN], [BETTER])
    assert everything is not None and (everything.low, everything.mean, everything.high) == pytest.approx(
        (100, 100, 100)
    )
    assert recovered([ANN], [half], [ANN], [ANN]) is None  # there is no gain to have a share of


def test_each_gain_counts_from_its_own_start() -> None:
    """A gain from 40 to 30 % is half of a gain from 50 to 30 %."""
    wrong = {rate: {f"s{n}": (100, rate) for n in range(4)} for rate in (50, 40, 30)}
    found = recovered([wrong[40]], [wrong[30]], [wrong[50]], [wrong[30]])
    assert found is not None and (found.low, found.mean, found.high) == pytest.approx((50, 50, 50))


def test_points_where_a_draw_has_no_errors() -> None:
    rare: Counts = {"ann": (10, 1), "bob": (10, 0)}
    found = change([rare], [{"ann": (10, 0), "bob": (10, 0)}], None)
    assert found.unit == "points" and found.mean == pytest.approx(-5)
    assert change([ANN], [BETTER], None).unit == "%"


def test_bleu_of_draws_is_that_of_the_corpus() -> None:
    references = {"ann": ["the cat sat on a mat", "we go home now"], "bob": ["it rains today again and again"]}
    before = {"ann": ["the cat sat on mat", "we go home"], "bob": ["it rained today"]}
    after = {"ann": ["the cat sat on a mat", "we go now home"], "bob": ["it rains today and again"]}
    pair = [
        {unit: bleu_counts(references[unit], texts[unit], "13a") for unit in references} for texts in (before, after)
    ]

    def corpus(texts: dict[str, list[str]], weights: dict[str, int]) -> float:
        drawn = [(unit, place) for unit, times in weights.items() for place in [*range(len(texts[unit]))] * times]
        expected = [[references[unit][place] for unit, place in drawn]]
        return float(corpus_bleu([texts[unit][place] for unit, place in drawn], expected).score)

    draws = [dict(pairs) for pairs in {tuple(weights.items()) for weights in drawn(["ann", "bob"])}]
    by_draw = {tuple(one.values()): corpus(after, one) - corpus(before, one) for one in draws}
    expected = [by_draw[tuple(weights.values())] for weights in drawn(["ann", "bob"])]
    found = change(pair[:1], pair[1:], "points")
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])))
    both = {"ann": 1, "bob": 1}
    assert found.mean == pytest.approx(corpus(after, both) - corpus(before, both)) and found.low < found.high
    assert rate(pair[:1]).mean == pytest.approx(corpus(before, both))


def test_what_cannot_be_paired() -> None:
    for after in ({"ann": (10, 5)}, {**ANN, "bob": (21, 4)}):
        with pytest.raises(ValueError, match="must have scored the same units"):
            change([ANN], [after])
    with pytest.raises(ValueError, match="nothing was scored"):
        change([{}], [{}])
