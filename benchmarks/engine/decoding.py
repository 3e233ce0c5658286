"""The cost of decoding with a cache, before and after, beside transformers' `generate` with its cache.

    python -m benchmarks.engine.decoding              # half an hour; needs FEDRAY_SPEECH with whisper-tiny.en/
    python -m benchmarks.engine.decoding --tiny       # seconds; its numbers say nothing, and it writes no page

Encoder states are noise, and no text ends, so all searches decode the same number of tokens: the time is that of the
decoder and its search, without the encoder. *Before* are SpeechBrain's searchers, which decode the whole prefix at each
step; fedray used them until 2026-11-28. `generate` runs the same Whisper, and for the Conformer a Whisper whose decoder
has the Conformer's sizes. One process, one thread, CPU time. fedray and `generate` take turns; before runs once, on
fewer utterances.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, cast

import torch
from speechbrain.decoders.seq2seq import S2STransformerBeamSearcher, S2STransformerGreedySearcher
from torch import Tensor, nn
from transformers import GenerationConfig, GenerationMixin, WhisperConfig, WhisperForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from benchmarks import study
from fedray.models.conformer import Conformer, ConformerSettings
from fedray.models.whisper import Whisper, WhisperSettings
from fedray.training.decoding.attention import AttentionSearch
from fedray.training.decoding.search import BLANK, DecodeSettings

COMMAND = "python -m benchmarks.engine.decoding"
CHARACTERS, EMBEDDED_FRAMES = 30, 75  # the embedded corpus: tokens, encoder frames of three seconds
ALLOWED = 1.2  # times the time of `generate`
Found = dict[str, list[float]]  # side -> CPU seconds an utterance, of each turn


class Endless(nn.Module):
    """A last layer that never says the end, or a token that no text keeps."""

    def __init__(self, head: nn.Module, never: list[int]) -> None:
        super().__init__()
        self.head, self.never, self.w = head, never, getattr(head, "w", head)

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.head(states)
        logits[..., self.never] = -1e4
        return logits


class Model:
    """A model whose texts do not end."""

    def __init__(self, model: Any) -> None:
        never = [model.eos, model.bos] + [BLANK] * hasattr(model, "ctc_head")
        self._model, self.attention_head = model, Endless(model.attention_head, never)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class Prefixes:
    """A decoder as SpeechBrain's searchers need it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def decode(self, tokens: Tensor, hidden: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        return self._model.decode(hidden, lengths, tokens.long()), None


def fedray(model: Model, hidden: Tensor, beam: int, tokens: int) -> object:
    a_frame = (tokens + 0.5) / hidden.shape[1]
    settings = DecodeSettings("attention", beam=beam, ctc_weight=0.0, lm_weight=0.0, max_tokens_per_frame=a_frame)
    lengths = torch.full((len(hidden),), hidden.shape[1])
    found = AttentionSearch(settings, str).transcribe(cast(Any, model), hidden, lengths)
    assert all(len(one.tokens) == tokens for one in found)
    return found


def before(model: Model, hidden: Tensor, beam: int, tokens: int) -> object:
    searcher = S2STransformerGreedySearcher if beam == 1 else S2STransformerBeamSearcher
    more = {} if beam == 1 else {"beam_size": beam, "using_eos_threshold": False, "length_normalization": True}
    made = searcher(
        modules=[Prefixes(model), model.attention_head],
        bos_index=model.bos,
        eos_index=model.eos,
        min_decode_ratio=0.0,
        max_decode_ratio=(tokens + 0.5) / hidden.shape[1],
        **more,
    )
    return made(hidden, torch.ones(len(hidden)))


def generate(theirs: Any, prompt: Sequence[int], hidden: Tensor, beam: int, tokens: int) -> object:
    settings = GenerationConfig(
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        num_beams=beam,
        do_sample=False,
        eos_token_id=theirs.config.eos_token_id,
        pad_token_id=theirs.config.eos_token_id,
        decoder_start_token_id=prompt[0],
    )
    start = torch.tensor([list(prompt)] * len(hidden))
    found = GenerationMixin.generate(
        theirs, encoder_outputs=BaseModelOutput(hidden), decoder_input_ids=start, generation_config=settings
    )
    assert found.shape[1] == len(prompt) + tokens
    return found


def conformer() -> tuple[Any, Any, Sequence[int], int]:
    """The embedded Conformer with a decoder, transformers' decoder of the same sizes, its prompt, encoder frames."""
    settings = ConformerSettings(decoder_layers=1)
    model = Conformer(settings, 40, CHARACTERS).eval()
    config = WhisperConfig(
        vocab_size=CHARACTERS + 2,
        d_model=settings.d_model,
        encoder_layers=1,
        encoder_attention_heads=settings.heads,
        decoder_layers=settings.decoder_layers,
        decoder_attention_heads=settings.heads,
        decoder_ffn_dim=settings.ffn,
        max_target_positions=448,
        bos_token_id=model.bos,
        eos_token_id=model.eos,
        pad_token_id=model.eos,
        decoder_start_token_id=model.bos,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return model, WhisperForConditionalGeneration(config).eval(), [model.bos], EMBEDDED_FRAMES


def whisper() -> tuple[Any, Any, Sequence[int], int]:
    """Whisper tiny, transformers' Whisper tiny, its prompt, encoder frames."""
    model = Whisper(WhisperSettings(str(study.speech("whisper-tiny.en")), language=None), 80, 51_864)
    model.load_pretrained()
    return model.eval(), model.whisper, model.prompt, model.window // 2


MODELS = {"Whisper tiny": whisper, "embedded Conformer": conformer}


def seconds(run: Callable[[], object]) -> float:
    begun = time.process_time()
    run()
    return time.process_time() - begun


def measure(name: str, beam: int, tokens: int, chosen: argparse.Namespace) -> Found:
    """CPU seconds an utterance of each side."""
    ours, theirs, prompt, frames = MODELS[name]()
    model = Model(ours)
    hidden = torch.randn(chosen.utterances, frames, theirs.config.d_model)
    few = hidden[: chosen.before]
    sides = {
        "fedray": lambda: fedray(model, hidden, beam, tokens),
        "generate": lambda: generate(theirs, prompt, hidden, beam, tokens),
    }
    found: Found = {side: [] for side in (*sides, "before")}
    for turn in range(chosen.turns + 1):  # the first turn does not count
        for side in sides if turn % 2 else reversed(sides):
            spent = seconds(sides[side]) / len(hidden)
            if turn:
                found[side].append(spent)
    if len(few):
        found["before"].append(seconds(lambda: before(model, few, beam, tokens)) / len(few))
    return found


def page(found: Mapping[str, Found], chosen: argparse.Namespace) -> str:
    rows = []
    for what, sides in found.items():
        ours, theirs = median(sides["fedray"]), median(sides["generate"])
        ratios = sorted(one / other for one, other in zip(sides["fedray"], sides["generate"], strict=True))
        before = f"{sides['before'][0]:.3g}" if sides["before"] else ""
        rows.append(
            {
                "model, beam, tokens": what,
                "before (s)": before,
                "fedray (s)": f"{ours:.3g}",
                "`generate` (s)": f"{theirs:.3g}",
                "fedray / `generate`": f"{median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]",
                "turns": len(ratios),
            }
        )
    return f"""# Decoding with a cache

CPU seconds an utterance of searches that decode a fixed number of tokens, for a batch of {chosen.utterances}
utterances, one thread: the decoder and its search, without the encoder. *Before* are SpeechBrain's searchers, which
decode the whole prefix at each step and which fedray used until 2026-11-28: once, with one or two utterances. fedray
and transformers' `generate`, which has a cache as well, take turns: medians over turns, and the range of the ratios.
fedray may take {ALLOWED:g} times as long as `generate`. For the Conformer, `generate` runs a Whisper whose decoder has
the Conformer's sizes (one layer, width 64). In a beam, fedray computes the keys and values of encoder states once for
an utterance, `generate` once for each hypothesis.

{study.table(rows)}"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--tokens", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--utterances", type=int, default=16)
    parser.add_argument("--before", type=int, default=2, help="utterances for the searchers before; 0: leave them out")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="a few tokens of the Conformer; writes no page")
    chosen = parser.parse_args(arguments)
    if chosen.tiny:
        chosen.models, chosen.tokens, chosen.utterances, chosen.turns = ["embedded Conformer"], [3], 2, 1
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {} if chosen.tiny else study.page_before("decoding").get("seconds", {})
    with torch.no_grad():
        for name in chosen.models:
            for beam in chosen.beams:
                for tokens in chosen.tokens:
                    what = f"{name}, {'greedy' if beam == 1 else beam}, {tokens}"
                    found[what] = measure(name, beam, tokens, chosen)
                    shown = ", ".join(f"{side} {median(spent):.4f}" for side, spent in found[what].items() if spent)
                    print(f"{what}: {shown}", flush=True)
    text = page(found, chosen)
    if not chosen.tiny:
        study.write("decoding", text, {"seconds": found}, study.command(parser, chosen), [0])
    print(text)


if __name__ == "__main__":
    main()
