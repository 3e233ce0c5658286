from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from fedray.models.language_model import NGram
from fedray.training.decoding.beam import BeamSearch, LexiconSearch
from fedray.training.decoding.search import DecodeSettings, GreedySearch, greedy
from tests.gpu.checks.algorithms import CONFORMER, cases
from tests.gpu.federation import sections, task_of
from tests.gpu.toys import Size, federation
from tests.language import log_probability

WORDS = ("one", "two", "on")
LETTERS = " entow"  # token i + 1


def encode(text: str) -> list[int]:
    return [LETTERS.index(letter) + 1 for letter in text]


def decode(tokens) -> str:
    return "".join(LETTERS[token - 1] for token in tokens)


def random_log_probs(frames: int, tokens: int, seed: int) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 2, (frames, tokens))
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def collapse(path) -> tuple[int, ...]:
    return tuple(token for token, _ in itertools.groupby(path) if token)


def exhaustive(log_probs: np.ndarray) -> dict[tuple[int, ...], float]:
    """The log-probability of every text: the sum over all alignments."""
    texts: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs)):
        probability = math.exp(sum(row[token] for row, token in zip(log_probs, path, strict=True)))
        texts[collapse(path)] = texts.get(collapse(path), 0.0) + probability
    return {text: math.log(probability) for text, probability in texts.items()}


def test_greedy_merges_repetitions_and_drops_blanks():
    paths = [[1, 1, 0, 1, 2, 2], [0, 0, 2, 1, 1, 1]]
    log_probs = torch.nn.functional.one_hot(torch.tensor(paths), 3).float().mul(5).log_softmax(-1)
    assert greedy(log_probs, torch.tensor([6, 4])) == [[1, 1, 2], [2, 1]]
    hypotheses = GreedySearch(DecodeSettings(search="greedy"), str)(log_probs, torch.tensor([6, 4]))
    best = 5 - math.log(math.exp(5) + 2)
    assert hypotheses[1].tokens == (2, 1) and hypotheses[1].score == pytest.approx(4 * best, abs=1e-5)
    assert hypotheses[1].confidence == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_a_wide_beam_is_the_exhaustive_search(seed):
    log_probs = random_log_probs(4, 3, seed)
    texts = exhaustive(log_probs)
    best = max(texts, key=texts.get)
    hypothesis = BeamSearch(DecodeSettings(beam=100, prune=100.0), str).search(log_probs)
    assert hypothesis.tokens == best
    assert hypothesis.score == pytest.approx(texts[best])
    assert hypothesis.confidence == pytest.approx(texts[best] / 4)


@pytest.mark.parametrize("seed", range(10))
def test_with_a_language_model_too(seed):
    log_probs = random_log_probs(4, 3, seed)
    model = NGram.train([[1, 2, 1], [2], [1, 2]], 3, vocabulary=3)
    settings = DecodeSettings(beam=100, prune=100.0, lm_weight=0.7, token_bonus=0.3)
    texts = exhaustive(log_probs)
    scores = {text: score + 0.7 * log_probability(model, text) + 0.3 * len(text) for text, score in texts.items()}
    best = max(scores, key=scores.get)
    hypothesis = BeamSearch(settings, str, model).search(log_probs)
    assert hypothesis.tokens == best and hypothesis.score == pytest.approx(scores[best])
    assert hypothesis.confidence == pytest.approx(texts[best] / 4)


def test_the_language_model_changes_the_winner():
    # One frame: token 1 with 0.5, token 2 with 0.4, blank 0.1. The language model has seen only token 2.
    log_probs = np.log(np.array([[0.1, 0.5, 0.4]]))
    model = NGram.train([[2]] * 8, 1, vocabulary=3)
    # Unigrams: 8 ends and 8 twos, 2 kinds: p(2) = p(end) = (8 + 2/3) / 18, p(1) = (2/3) / 18.
    two, one, end = (8 + 2 / 3) / 18, (2 / 3) / 18, (8 + 2 / 3) / 18
    plain = BeamSearch(DecodeSettings(), str).search(log_probs)
    fused = BeamSearch(DecodeSettings(lm_weight=1.0, token_bonus=1.0), str, model).search(log_probs)
    assert plain.tokens == (1,) and plain.score == pytest.approx(math.log(0.5))
    assert math.log(0.4 * two) > math.log(0.5 * one)
    assert fused.tokens == (2,) and fused.score == pytest.approx(math.log(0.4 * two * end) + 1)
    # Without a bonus the empty text, 0.1 x p(end), is still worse than 0.4 x p(2) x p(end).
    assert BeamSearch(DecodeSettings(lm_weight=1.0, token_bonus=0.0), str, model).search(log_probs).tokens == (2,)


def test_a_weight_of_0_is_no_language_model():
    log_probs, model = random_log_probs(30, 3, 0), NGram.train([[1, 2, 1], [2]], 3, vocabulary=3)
    settings = DecodeSettings(lm_weight=0, token_bonus=2.0)
    assert BeamSearch(settings, str, model).search(log_probs) == BeamSearch(settings, str).search(log_probs)


def test_batches_are_single_utterances_and_runs_repeat():
    log_probs = np.stack([random_log_probs(30, 7, seed) for seed in range(3)])
    lengths = torch.tensor([30, 12, 21])
    model = NGram.train([encode("one two"), encode("two on")], 4, vocabulary=7)
    first = BeamSearch(DecodeSettings(), decode, model)(torch.tensor(log_probs), lengths)
    search = BeamSearch(DecodeSettings(), decode, model)
    assert first == [search.search(row[:length]) for row, length in zip(log_probs, lengths.tolist(), strict=True)]
    assert [hypothesis.text for hypothesis in first] == [decode(hypothesis.tokens) for hypothesis in first]


def test_long_utterances_do_not_underflow():
    hypothesis = BeamSearch(DecodeSettings(), str).search(random_log_probs(3000, 7, 0))
    assert math.isfinite(hypothesis.score) and hypothesis.score < -700


def sentences(counts) -> dict[tuple[int, ...], str]:
    return {
        tuple(encode(" ".join(words))): " ".join(words)
        for count in counts
        for words in itertools.product(WORDS, repeat=count)
    }


@pytest.mark.parametrize("seed", range(5))
def test_lexicon_search_is_the_exhaustive_search_of_its_sentences(seed):
    log_probs = random_log_probs(9, len(LETTERS) + 1, seed)
    allowed = sentences((1, 2))
    targets = list(allowed)
    scores = -torch.nn.functional.ctc_loss(
        torch.tensor(log_probs)[:, None].expand(-1, len(targets), -1),
        torch.cat([torch.tensor(target) for target in targets]),
        torch.full((len(targets),), 9),
        torch.tensor([len(target) for target in targets]),
        reduction="none",
    )
    best = int(scores.argmax())
    hypothesis = LexiconSearch(DecodeSettings("lexicon", beam=200, lexicon=WORDS, max_words=2), encode, decode).search(
        log_probs
    )
    assert hypothesis.text == allowed[targets[best]]
    assert hypothesis.score == pytest.approx(float(scores[best]))


def test_lexicon_search_gives_words_within_the_counts():
    for seed, (low, high) in enumerate([(1, 1), (2, 3), (3, 3), (1, 4)] * 3):
        settings = DecodeSettings("lexicon", lexicon=WORDS, min_words=low, max_words=high)
        hypothesis = LexiconSearch(settings, encode, decode).search(random_log_probs(25, 7, seed))
        words = hypothesis.text.split(" ")
        assert set(words) <= set(WORDS) and low <= len(words) <= high


def test_lexicon_of_sub_words_where_one_word_begins_another():
    # Pieces without a separator, 1 = _a and 2 = b: the words are "a" = [1] and "ab" = [1, 2].
    def pieces(text: str) -> list[int]:
        return [token for word in text.split() for token in {"a": [1], "ab": [1, 2]}[word]]

    search = LexiconSearch(
        DecodeSettings("lexicon", lexicon=("a", "ab"), min_words=2, max_words=2, prune=100.0), pieces, str
    )
    path = np.log(np.full((6, 3), 0.01))
    for frame, token in enumerate([1, 2, 0, 1, 0, 0]):
        path[frame, token] = np.log(0.98)
    assert search.search(path).tokens == (1, 2, 1)


def test_a_lexicon_that_cannot_fit_gives_no_text():
    search = LexiconSearch(DecodeSettings("lexicon", lexicon=WORDS, min_words=3, max_words=3), encode, decode)
    hypothesis = search.search(random_log_probs(4, 7, 0))  # three words need eight frames
    assert hypothesis.tokens == () and hypothesis.text == "" and hypothesis.score == hypothesis.confidence == -math.inf


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"search": "lattice"}, "one of greedy, ctc, lexicon, attention"),
        ({"beam": 0}, "at least 1"),
        ({"search": "lexicon"}, "decode.lexicon"),
        ({"min_words": 3, "max_words": 2}, "is above decode.max_words"),
    ],
)
def test_wrong_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        DecodeSettings(**changes)


class TinyGRU:
    """A neural language model; its state is the history, the key to its hidden tensors."""

    size = 4

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.embedding, self.cell, self.out = (
            torch.nn.Embedding(self.size, 5),
            torch.nn.GRUCell(5, 5),
            torch.nn.Linear(5, self.size),
        )
        self.hidden = {}

    def start(self):
        return self.step((), 0)

    @torch.no_grad()
    def step(self, state, token):
        history = (*state, token)
        if history not in self.hidden:
            self.hidden[history] = self.cell(self.embedding(torch.tensor([token])), self.hidden.get(state))
        return history

    @torch.no_grad()
    def log_probs(self, state):
        return self.out(self.hidden[state])[0].log_softmax(-1).double().numpy()

    def end(self, state):
        return float(self.log_probs(state)[0])


def test_a_neural_model_fits_the_protocol():
    model = TinyGRU()
    # The texts of at most 6 tokens have a probability below 1 together: longer texts have the rest.
    total = sum(
        math.exp(log_probability(model, tokens))
        for length in range(7)
        for tokens in itertools.product((1, 2, 3), repeat=length)
    )
    assert 0.5 < total < 1
    search = BeamSearch(DecodeSettings(beam=50, prune=100.0, lm_weight=1.0, token_bonus=0.0), str, model)
    uniform = np.full((2, TinyGRU.size), -math.log(TinyGRU.size))
    # Numbers of alignments with two frames: 1 of no token, 3 of one token, 1 of two different tokens.
    scores = (
        {(): 1.0}
        | dict.fromkeys(itertools.product((1, 2, 3)), 3.0)
        | dict.fromkeys(itertools.permutations((1, 2, 3), 2), 1.0)
    )
    best = max(scores, key=lambda tokens: math.log(scores[tokens] / 16) + log_probability(model, tokens))
    hypothesis = search.search(uniform)
    assert hypothesis.tokens == best
    assert hypothesis.score == pytest.approx(math.log(scores[best] / 16) + log_probability(model, best))


def test_a_word_that_the_tokens_cannot_write_is_named_before_the_run() -> None:
    case = {"task": {"kind": "recognition", "decode": {"search": "lexicon", "lexicon": ["a", "ça"]}}}
    with pytest.raises(ValueError, match="task.decode.lexicon: the tokens cannot write the word 'ça': remove it"):
        task_of(sections({"model": CONFORMER, "rounds": 1, **cases()["fedavg conformer"], **case}), federation(Size()))
