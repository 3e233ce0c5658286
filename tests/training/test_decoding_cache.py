"""Searches with a cache find what searches without one find, and what SpeechBrain's searchers find."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from speechbrain.decoders.scorer import CTCScorer, ScorerBuilder
from speechbrain.decoders.seq2seq import (
    S2SRNNBeamSearcher,
    S2SRNNGreedySearcher,
    S2STransformerBeamSearcher,
    S2STransformerGreedySearcher,
)
from torch import Tensor, nn

from fedray.models.conformer import Conformer, ConformerSettings
from fedray.models.crdnn import CRDNN, CRDNNSettings
from fedray.models.language_model import NGram
from fedray.models.memory import Memory, MemorySettings
from fedray.models.steps import WholePrefixes
from fedray.training.decoding.attention import AttentionSearch, steps_of
from fedray.training.decoding.hypotheses import compacted
from fedray.training.decoding.search import DecodeSettings, Hypothesis
from fedray.training.knn.decoding import Retrieval, SearchWithMemory

VOCABULARY, BINS = 9, 8


def conformer(**changes: Any) -> Conformer:
    sizes = {"d_model": 16, "heads": 2, "ffn": 24, "kernel": 3, "layers": 1, "decoder_layers": 2} | changes
    return Conformer(ConformerSettings(**sizes), BINS, VOCABULARY)


def crdnn(**changes: Any) -> CRDNN:
    sizes = {"channels": (4,), "rnn_neurons": 8, "dnn_neurons": 12, "decoder_neurons": 10, "attention": 9}
    return CRDNN(CRDNNSettings(**sizes, embedding=5, attention_kernel=2, decoder_layers=1), BINS, VOCABULARY)


def whisper(folder: Path) -> Any:
    pytest.importorskip("transformers")
    from fedray.data.text.pretrained_tokeniser import PretrainedTokeniser
    from fedray.models.whisper import Whisper, WhisperSettings
    from tests.whisper import write_checkpoint

    write_checkpoint(folder)
    model = Whisper(WhisperSettings(str(folder)), 80, PretrainedTokeniser.load(folder).size)
    model.load_pretrained()
    return model


MODELS = {
    "conformer": conformer,
    "conformer with absolute positions": lambda: conformer(attention="regularMHA", decoder_layers=1),
    "crdnn": crdnn,
    "whisper": whisper,
}


def decisive(model: nn.Module) -> nn.Module:
    """The model with larger weights, whose outputs differ from prefix to prefix and sometimes end."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and ("decoder" in name or "tgt" in name):
                weight *= 2
    return model.eval()


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.manual_seed(len(request.param))
    given = (tmp_path_factory.mktemp("whisper"),) if request.param == "whisper" else ()
    made = decisive(MODELS[request.param](*given))
    with torch.no_grad():
        if request.param == "whisper":  # its head is its embedding, which hides the rest
            made.whisper.proj_out.weight *= 3
            made.whisper.proj_out.weight[made.eos] = 0.15 * torch.randn(16)
            for layer in made.whisper.model.decoder.layers:
                layer.encoder_attn.v_proj.weight *= 8
            made.whisper.model.decoder.embed_positions.weight *= 10
        else:
            made.attention_head.w.weight *= 8
            made.attention_head.w.bias[made.eos] += 1
    return made


def spoken(seed: int, width: int, frames: list[int]) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(len(frames), max(frames), width), torch.tensor(frames)


def width_of(model: Any) -> int:
    return 12 if isinstance(model, CRDNN) else 16


class Plain:
    """A model that offers no steps."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        if name == "steps":
            raise AttributeError(name)
        return getattr(self._model, name)


def memory_of(model: Any, seed: int) -> Memory:
    """Random pairs, near to states of the model."""
    generator = np.random.default_rng(seed)
    hidden, lengths = spoken(seed, width_of(model), [20])
    tokens = torch.from_numpy(generator.integers(1, VOCABULARY, (1, 30)))
    with torch.no_grad():
        keys = model.decode(hidden, lengths, tokens)[0].numpy()
    return Memory(keys, generator.integers(1, VOCABULARY, len(keys)), "", MemorySettings("states"))


def same(one: list[Hypothesis], other: list[Hypothesis]) -> None:
    assert [hypothesis.tokens for hypothesis in one] == [hypothesis.tokens for hypothesis in other]
    for name in ("score", "confidence"):
        left, right = ([getattr(hypothesis, name) for hypothesis in found] for found in (one, other))
        assert left == pytest.approx(right, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_search_with_a_cache_is_one_without(model: Any, seed: int, remembers: bool) -> None:
    """For random beams, batch sizes, lengths, weights and memories."""
    random = np.random.default_rng([seed, remembers])
    frames = random.integers(3, 40, random.integers(1, 6)).tolist()
    hidden, lengths = spoken(seed, width_of(model), frames)
    has_ctc, joint = hasattr(model, "ctc"), bool(random.integers(2))
    settings = DecodeSettings(
        "attention",
        beam=int(random.choice([1, 1, 2, 3, 5])),
        ctc_weight=0.3 if has_ctc and joint else 0.0,
        lm_weight=0.4 if has_ctc and joint else 0.0,
        temperature=float(random.choice([1.0, 1.3])),
        max_tokens_per_frame=float(random.choice([0.3, 1.0])),
    )
    language = NGram.train([[1, 2, 3], [2, 1, 4, 2]], 2, vocabulary=VOCABULARY)
    search: Any = AttentionSearch(settings, str, language)
    if remembers:
        search = SearchWithMemory(search, memory_of(model, seed), Retrieval(4, 0.5, 1.0))
    same(search.transcribe(model, hidden, lengths), search.transcribe(cast(Any, Plain(model)), hidden, lengths))


class Decoder:
    """A decoder as SpeechBrain's searchers for Transformers need it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def decode(self, tokens: Tensor, hidden: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        return self._model.decode(hidden, lengths, tokens.long()), None


class Head(nn.Module):
    """A last layer as SpeechBrain's searchers need it."""

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.linear, self.w = linear, getattr(linear, "w", linear)

    def forward(self, states: Tensor) -> Tensor:
        return self.linear(states)


class PaddedCTCHead(nn.Module):
    """The CTC head with as many outputs as the attention head."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.head, self.size = model.ctc_head, model.attention_head.w.out_features

    def forward(self, hidden: Tensor) -> Tensor:
        logits = self.head(hidden)
        return nn.functional.pad(logits, (0, self.size - logits.shape[-1]), value=-1e20)


def by_speechbrain(
    model: Any, hidden: Tensor, limit: int, beam: int, ctc_weight: float
) -> tuple[list[list[int]], list[float]]:
    """The texts and a beam's scores of SpeechBrain's searchers, whose limit counts the end of a beam's texts."""
    most = limit + (beam > 1)
    common = {"bos_index": model.bos, "eos_index": model.eos, "min_decode_ratio": 0.0}
    common["max_decode_ratio"] = (most + 0.5) / hidden.shape[1]
    if isinstance(model, CRDNN):
        parts = {"embedding": model.embedding, "decoder": model.decoder, "linear": model.attention_head}
        searchers: Any = (S2SRNNGreedySearcher, S2SRNNBeamSearcher)
    else:
        parts = {"modules": [Decoder(model), Head(model.attention_head)]}
        searchers = (S2STransformerGreedySearcher, S2STransformerBeamSearcher)
    ones = torch.ones(len(hidden))
    if beam == 1:
        tokens, *_ = searchers[0](**parts, **common)(hidden, ones)
        return tokens, []
    scorer = None
    if ctc_weight:
        ctc = CTCScorer(PaddedCTCHead(model), 0, model.eos)
        scorer = ScorerBuilder(weights={"ctc": ctc_weight}, full_scorers=[ctc])
    searcher = searchers[1](
        **parts, **common, beam_size=beam, scorer=scorer, using_eos_threshold=False, length_normalization=True
    )
    tokens, _, scores, _ = searcher(hidden, ones)
    return tokens, scores.tolist()


@pytest.mark.parametrize(("beam", "ctc_weight"), [(1, 0.0), (3, 0.0), (4, 0.4)])
@pytest.mark.parametrize("limit", [5, 30])
def test_a_search_is_speechbrains(model: Any, beam: int, ctc_weight: float, limit: int) -> None:
    if ctc_weight and not hasattr(model, "ctc"):
        pytest.skip("this model has no CTC")
    hidden, lengths = spoken(beam, width_of(model), [30, 30, 30, 30])
    settings = DecodeSettings(
        "attention", beam=beam, ctc_weight=ctc_weight, lm_weight=0.0, max_tokens_per_frame=(limit + 0.5) / 30
    )
    found = AttentionSearch(settings, str).transcribe(model, hidden, lengths)
    with torch.no_grad():
        tokens, scores = by_speechbrain(model, hidden, limit, beam, ctc_weight)
    not_text = {model.bos, 0} if hasattr(model, "ctc_head") else {model.bos}
    assert [list(one.tokens) for one in found] == [[token for token in row if token not in not_text] for row in tokens]
    if beam > 1:
        assert [one.score for one in found] == pytest.approx(scores, rel=1e-4)


@pytest.mark.parametrize("beam", [1, 3, 20])
def test_a_model_that_has_diverged_says_something(model: Any, beam: int) -> None:
    """Also with a beam that is wider than the vocabulary."""
    hidden, lengths = spoken(0, width_of(model), [9, 5])
    settings = DecodeSettings("attention", beam=beam, ctc_weight=0.0, lm_weight=0.0)
    for states in (hidden, hidden * torch.nan):
        found = AttentionSearch(settings, str).transcribe(model, states, lengths)
        assert all(len(one.tokens) <= 9 + 10 for one in found)


@pytest.mark.parametrize("seed", range(3))
def test_steps_give_the_states_of_whole_prefixes(model: Any, seed: int) -> None:
    """While hypotheses replace one another, and utterances leave."""
    random = np.random.default_rng(seed)
    beam, frames = int(random.integers(1, 4)), random.integers(3, 20, 4).tolist()
    hidden, lengths = spoken(seed, width_of(model), frames)
    with torch.no_grad():
        steps, whole = steps_of(model, hidden, lengths, beam), WholePrefixes(model.decode, hidden, lengths, beam)
        assert type(steps) is not WholePrefixes
        tokens = torch.full((len(frames) * beam,), model.bos)
        for length in range(40):
            torch.testing.assert_close(steps(tokens), whole(tokens), rtol=1e-4, atol=1e-5)
            count = len(tokens) // beam
            chosen = random.integers(0, beam, (count, beam)) + np.arange(count)[:, None] * beam
            for one in (steps, whole):
                one.follow(torch.from_numpy(chosen.ravel()))
            if length in (5, 33):
                going = [True, False, *[True] * (count - 2)]
                for one in (steps, whole):
                    one.keep(compacted(going))
                count -= 1
            tokens = torch.from_numpy(random.integers(1, VOCABULARY, count * beam))


def test_the_last_places_fill_the_gaps() -> None:
    assert compacted([True, False, True, False, True, True]) == [0, 4, 2, 5]
