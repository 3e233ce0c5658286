from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter

import numpy as np
import pytest

from fedray.models.language_model import NGram
from tests.language import log_probability

VOCABULARY = 4
SEQUENCES = [[1, 2, 1, 3], [1, 1, 2], [3], [], [2, 1, 2, 1, 2, 1], [1, 2, 1, 3]]


def witten_bell(order: int, history: tuple[int, ...], token: int) -> float:
    """A token's probability by definition, from counts: 0 in a history is the start, 0 as a token is the end."""
    followers: Counter[tuple[tuple[int, ...], int]] = Counter()
    for sequence in SEQUENCES:
        padded = (0, *sequence, 0)
        for at in range(1, len(padded)):
            for length in range(min(order - 1, at) + 1):
                followers[padded[at - length : at], padded[at]] += 1

    def probability(context: tuple[int, ...]) -> float:
        below = probability(context[1:]) if context else 1 / VOCABULARY
        seen = {w: count for (h, w), count in followers.items() if h == context}
        if not seen:
            return below
        return (seen.get(token, 0) + len(seen) * below) / (sum(seen.values()) + len(seen))

    return probability(history[max(0, len(history) - order + 1) :])


@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_probabilities_are_the_definition(order):
    model = NGram.train(SEQUENCES, order, vocabulary=VOCABULARY)
    for length in range(5):
        for tokens in itertools.product(range(1, VOCABULARY), repeat=length):
            state = model.start()
            for token in tokens:
                state = model.step(state, token)
            expected = [math.log(witten_bell(order, (0, *tokens), token)) for token in range(VOCABULARY)]
            np.testing.assert_allclose(model.log_probs(state), expected, atol=1e-12)
            assert model.end(state) == pytest.approx(expected[0])
            assert np.exp(model.log_probs(state)).sum() == pytest.approx(1)


def test_the_probability_of_a_sequence_counts_its_end():
    model = NGram.train(SEQUENCES, 2, vocabulary=VOCABULARY)
    expected = sum(math.log(witten_bell(2, *step)) for step in [((0,), 1), ((0, 1), 2), ((0, 1, 2), 0)])
    assert log_probability(model, [1, 2]) == pytest.approx(expected)


def test_pickles_give_the_same_bits():
    model = NGram.train(SEQUENCES, 3, vocabulary=VOCABULARY)
    model.log_probs(model.start())
    again = NGram.train(SEQUENCES, 3, vocabulary=VOCABULARY)
    for other in (again, pickle.loads(pickle.dumps(model))):
        assert other.order == 3 and other.nbytes == model.nbytes
        for ours, theirs in zip(model.levels, other.levels, strict=True):
            assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def test_the_cache_is_bounded():
    model = NGram.train(SEQUENCES, 6, vocabulary=VOCABULARY)
    model._rows = 2
    fresh = NGram.train(SEQUENCES, 6, vocabulary=VOCABULARY)
    for tokens in itertools.product(range(1, VOCABULARY), repeat=3):
        assert np.array_equal(model.log_probs(tokens), fresh.log_probs(tokens))
        assert len(model._cache) <= 2


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match=r"lower task\.language_model\.order"):
        NGram.train(SEQUENCES, 6, vocabulary=5000)
    with pytest.raises(ValueError, match="at least one"):
        NGram.train([], 2, vocabulary=4)
    with pytest.raises(ValueError, match="found 1..4"):
        NGram.train([[1, 4]], 2, vocabulary=4)
