"""The compiled beam search gives the same bits as the same search in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedray.models.language_model import NGram
from fedray.training.decoding.beam import BeamSearch, LexiconSearch
from fedray.training.decoding.prefixes import PrefixTree
from fedray.training.decoding.search import DecodeSettings

VOCABULARY = 9
WORDS = ("ab", "ba", "abc", "hade")


def spelling(text: str) -> list[int]:
    return [" abcdefgh".index(letter) if letter != " " else 8 for letter in text]


def expected(log_probs, settings, language_model, lexicon, beam):
    """The hypotheses of the last beam: (score, acoustic log-probability, tokens); a prefix is its tuple of tokens."""

    def allowed(prefix):
        state = lexicon.start()
        for token in prefix:
            state = lexicon.next(state)[token]
        return state

    def history(prefix):
        state = language_model.start()
        for token in prefix:
            state = language_model.step(state, token)
        return state

    numbers, fused, scale = {(): 0}, {(): 0.0}, 0.0
    live = {(): (1.0, 0.0)}
    for row in log_probs:
        probabilities, floor = np.exp(row).tolist(), row.max() - settings.prune
        grown = {}
        for prefix, (blank, token_end) in live.items():
            whole, last = blank + token_end, prefix[-1] if prefix else 0
            stay = grown.setdefault(prefix, [0.0, 0.0])
            stay[0] += whole * probabilities[0]
            if prefix:
                stay[1] += token_end * probabilities[last]
            for token in lexicon.next(allowed(prefix)) if lexicon else np.flatnonzero(row >= floor).tolist():
                before = blank if token == last else whole
                if token == 0 or not before > 0.0:
                    continue
                child = (*prefix, token)
                if child not in numbers:
                    numbers[child], gain = len(numbers), 0.0
                    if language_model:
                        probability = float(language_model.log_probs(history(prefix))[token])
                        gain = settings.lm_weight * probability + settings.token_bonus
                    fused[child] = fused[prefix] + gain
                grown.setdefault(child, [0.0, 0.0])[1] += before * probabilities[token]
        scores = {prefix: math.log(sum(pair)) + fused[prefix] for prefix, pair in grown.items() if sum(pair) > 0.0}
        best = sorted(scores, key=lambda prefix: (-scores[prefix], numbers[prefix]))[:beam]
        if not best:
            return []
        largest = max(sum(grown[prefix]) for prefix in best)
        scale += math.log(largest)
        live = {prefix: (grown[prefix][0] / largest, grown[prefix][1] / largest) for prefix in best}
    found = []
    for prefix, pair in live.items():
        if lexicon and not lexicon.accepts(allowed(prefix)):
            continue
        acoustic = scale + math.log(sum(pair))
        ending = settings.lm_weight * language_model.end(history(prefix)) if language_model else 0.0
        found.append((acoustic + fused[prefix] + ending, acoustic, prefix))
    return found


def log_probabilities(frames: int, spread: float, seed: int) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, spread, (frames, VOCABULARY))
    logits[::4, 0] += 3 * spread  # frames in which nothing but the blank is likely
    logits[1::7] = np.round(logits[1::7])  # equal probabilities give equal scores
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


@pytest.mark.parametrize("lexical", [False, True])
@pytest.mark.parametrize("order", [None, 1, 4])
@pytest.mark.parametrize("beam", [1, 3, 16])
def test_a_search_has_the_bits_of_python(beam, order, lexical):
    texts = np.random.default_rng(5).integers(1, VOCABULARY, (20, 6)).tolist()
    model = NGram.train(texts, order, vocabulary=VOCABULARY) if order else None
    settings = DecodeSettings(beam=beam, lm_weight=2.0, token_bonus=2.5, prune=5.0, lexicon=WORDS, min_words=2)
    search = LexiconSearch(settings, spelling, str, model) if lexical else BeamSearch(settings, str, model)
    for seed, (frames, spread) in enumerate([(0, 1.0), (1, 2.0), (40, 0.5), (40, 2.0), (60, 6.0)]):
        log_probs = log_probabilities(frames, spread, seed)
        tree = PrefixTree(settings, model, search.lexicon)
        found = [(score, acoustic, tree.tokens(prefix)) for score, acoustic, prefix in tree.run(log_probs, beam)]
        assert found == expected(log_probs, settings, model, search.lexicon, beam)


def test_impossible_tokens_end_no_prefix():
    log_probs = np.full((5, VOCABULARY), -np.inf)
    log_probs[:, 2] = 0.0
    hypothesis = BeamSearch(DecodeSettings(), str).search(log_probs)
    assert hypothesis.tokens == (2,) and hypothesis.score == 0.0
