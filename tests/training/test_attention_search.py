from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch

from fedray.models.conformer import Conformer, ConformerSettings
from fedray.models.crdnn import CRDNN, CRDNNSettings
from fedray.models.language_model import NGram
from fedray.training.decoding.attention import AttentionSearch
from fedray.training.decoding.search import DecodeSettings
from tests.language import log_probability

VOCABULARY = 3


def conformer():
    return Conformer(
        ConformerSettings(d_model=16, heads=2, ffn=32, kernel=7, layers=1, decoder_layers=1), 10, VOCABULARY
    )


def crdnn():
    sizes = {
        "channels": (4,),
        "rnn_neurons": 8,
        "dnn_neurons": 16,
        "decoder_neurons": 10,
        "attention": 9,
        "embedding": 5,
    }
    return CRDNN(CRDNNSettings(**sizes, attention_kernel=2, decoder_layers=1, time_pooling=3), 10, VOCABULARY)


@pytest.fixture(scope="module", params=[conformer, crdnn])
def encoded(request):
    torch.manual_seed(1)
    model = request.param().eval()
    # An untrained decoder gives almost the same output everywhere: large weights make it vary.
    torch.nn.init.normal_(model.attention_head.w.weight, std=1.0)
    torch.nn.init.normal_(model.ctc_head.w.weight, std=1.0)
    with torch.no_grad():
        return model, *model.encode(torch.randn(3, 16, 10), torch.tensor([16, 9, 12]))


def attention(model, hidden, lengths, tokens) -> float:
    """The decoder's log-probability of a text and its end."""
    targets = torch.tensor([[*tokens, model.eos]])
    with torch.no_grad():
        scores = model.attend(hidden, lengths, torch.tensor([[model.bos, *tokens]])).gather(-1, targets[..., None])[
            0, :, 0
        ]
    return float(scores.sum())


def test_greedy_takes_the_best_token_each_step(encoded):
    model, hidden, lengths = encoded
    hypotheses = AttentionSearch(DecodeSettings("attention", beam=1), str).transcribe(model, hidden, lengths)
    for row, hypothesis in enumerate(hypotheses):
        tokens: list[int] = []
        while len(tokens) < int(lengths[row]):
            scores = model.attend(hidden[row : row + 1], lengths[row : row + 1], torch.tensor([[model.bos, *tokens]]))
            tokens.append(int(scores[0, -1].argmax()))
            if tokens[-1] == model.eos:
                tokens.pop()
                break
        tokens = [token for token in tokens if token not in (0, model.bos)]
        assert hypothesis.tokens == tuple(tokens)
        score = attention(model, hidden[row : row + 1], lengths[row : row + 1], tokens)
        assert hypothesis.confidence == pytest.approx(score / int(lengths[row]), abs=1e-4)
        assert hypothesis.score == pytest.approx(score, abs=1e-3)


def ctc(model, hidden, lengths, tokens) -> float:
    """CTC's log-probability of a text, by enumeration of the alignments."""
    with torch.no_grad():
        log_probs = model.ctc(hidden)[0, : int(lengths)].double()
    total = 0.0
    for path in itertools.product(range(VOCABULARY), repeat=len(log_probs)):
        if tuple(token for token, _ in itertools.groupby(path) if token) == tuple(tokens):
            total += float(log_probs[range(len(log_probs)), list(path)].sum().exp())
    return float(torch.tensor(total).log())


@pytest.mark.parametrize("row", [0, 1, 2])
def test_joint_score_is_attention_ctc_and_language_model(encoded, row):
    model, hidden, lengths = encoded
    hidden, lengths = hidden[row : row + 1, : int(lengths[row])], lengths[row : row + 1]
    language = NGram.train([[1, 2], [2, 1, 2]], 2, vocabulary=VOCABULARY)
    settings = DecodeSettings("attention", beam=80, lm_weight=0.5, ctc_weight=0.4)
    (hypothesis,) = AttentionSearch(settings, str, language).transcribe(model, hidden, lengths)
    scores = {}
    for length in range(int(lengths)):
        for tokens in itertools.product(range(1, VOCABULARY), repeat=length):
            joint = 0.6 * attention(model, hidden, lengths, tokens) + 0.4 * ctc(model, hidden, lengths, tokens)
            scores[tokens] = (joint + 0.5 * log_probability(language, tokens)) / (length + 1)
    assert hypothesis.tokens in scores
    assert hypothesis.score == pytest.approx(scores[hypothesis.tokens], abs=1e-3)
    assert hypothesis.tokens == max(scores, key=scores.get)


def test_a_batch_gives_what_its_utterances_give(encoded):
    model, hidden, lengths = encoded
    search = AttentionSearch(DecodeSettings("attention", beam=4), str)
    together = search.transcribe(model, hidden, lengths)
    for row, hypothesis in enumerate(together):
        (alone,) = search.transcribe(model, hidden[row : row + 1, : int(lengths[row])], lengths[row : row + 1])
        assert alone.tokens == hypothesis.tokens


def test_beams_divide_by_the_temperature(encoded):
    """Beams divide log-probabilities by the temperature: a high one makes all tokens almost equally likely."""
    model, hidden, lengths = encoded
    scores = {}
    for temperature in (1.0, 1.5, 1e6):
        settings = DecodeSettings("attention", beam=3, ctc_weight=0.0, lm_weight=0.0, temperature=temperature)
        scores[temperature] = [one.score for one in AttentionSearch(settings, str).transcribe(model, hidden, lengths)]
    assert scores[1e6] == pytest.approx([-math.log(VOCABULARY + 2)] * 3, abs=1e-3)
    assert scores[1.0] != scores[1.5]


def endless(model):
    """A copy of the model whose decoder always says token 1 and never ends."""
    model = copy.deepcopy(model)
    torch.nn.init.zeros_(model.attention_head.w.weight)
    with torch.no_grad():
        model.attention_head.w.bias[:] = -100 * (torch.arange(len(model.attention_head.w.bias)) != 1)
        model.attention_head.w.bias[model.eos] = -1e4  # worse than any other token of a beam
    return model


def test_a_text_may_have_a_token_for_each_frame(encoded):
    """A CRDNN's `longest`, the frames of its ONNX trace, must not limit a text."""
    model, hidden, _ = encoded
    model, frames = endless(model), 60
    search = AttentionSearch(DecodeSettings("attention", beam=1), str)
    (found,) = search.transcribe(model, torch.randn(1, frames, hidden.shape[2]), torch.tensor([frames]))
    assert found.tokens == (1,) * frames


@pytest.mark.parametrize("beam", [1, 3])
def test_a_text_has_so_many_tokens_a_frame_at_most(encoded, beam):
    """The limit follows the frames of each utterance, whatever else is in its batch."""
    model, hidden, _ = encoded
    states, lengths = torch.randn(3, 40, hidden.shape[2]), torch.tensor([40, 20, 3])
    for a_frame, sizes in ((0.25, [10, 5, 0]), (None, [40, 20, 3])):
        settings = DecodeSettings("attention", beam, lm_weight=0.0, ctc_weight=0.0, max_tokens_per_frame=a_frame)
        found = AttentionSearch(settings, str).transcribe(endless(model), states, lengths)
        assert [len(one.tokens) for one in found] == sizes
