"""Checks that a model fits the settings of recognition or translation, and that utterances fit Whisper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedray.data.features.dataset import Utterances
from fedray.data.text.tokenisers import Tokeniser, load_tokeniser, tokeniser_file
from fedray.models.whisper import FRAMES_A_SECOND, OVERHANG, Whisper
from fedray.training.decoding.search import DecodeSettings
from fedray.training.recognisers import Recogniser

ROUNDING = 1e-3  # a difference of log-probabilities up to this may be rounding


def check_model(model_class: type, model: Any, tokens: str, ctc_weight: float, decode: DecodeSettings) -> None:
    """Raise ValueError when the task's settings need something the model lacks.

    `model`: the model's settings. Those of a user's class may have no `init`, `decoder_layers`, `bos` and `eos`.
    """
    if issubclass(model_class, Whisper):
        required = {
            "task.tokens=pretrained": tokens == "pretrained",
            "task.ctc_weight=0": ctc_weight == 0,
            "task.decode.search=attention": decode.search == "attention",
            "task.decode.ctc_weight=0": decode.ctc_weight == 0,
        }
        if missing := [setting for setting, given in required.items() if not given]:
            raise ValueError(f"model.kind whisper has its checkpoint's tokens and no CTC: set {', '.join(missing)}")
        return
    check_token_source(model, tokens)
    if not hasattr(model_class, "ctc"):
        raise ValueError(
            f"task.kind recognition cannot train {model_class.__name__} without CTC: set model.kind=conformer or crdnn"
        )
    has_decoder = getattr(model, "decoder_layers", hasattr(model_class, "attend"))
    if ctc_weight < 1 and not has_decoder:
        raise ValueError("task.ctc_weight below 1 needs a decoder: set model.decoder_layers, or task.ctc_weight=1")
    if ctc_weight == 0 and (decode.search != "attention" or decode.ctc_weight):
        raise ValueError(
            "task.ctc_weight=0 trains no CTC: set task.decode.search=attention and task.decode.ctc_weight=0, or "
            "task.ctc_weight above 0"
        )
    if decode.search != "attention":
        return
    if not has_decoder:
        raise ValueError("task.decode.search=attention needs a decoder: set model.decoder_layers")
    if ctc_weight == 1 and getattr(model, "init", None) is None:
        raise ValueError(
            "task.decode.search=attention searches with a decoder, which task.ctc_weight=1 does not train: set "
            "task.ctc_weight below 1, or model.init"
        )
    if decode.ctc_weight == 1:
        raise ValueError("task.decode.ctc_weight=1 leaves the decoder no weight: set it below 1")
    bos, eos = getattr(model, "bos", None), getattr(model, "eos", None)
    if decode.beam > 1 and decode.ctc_weight and bos is not None and len({0, bos, eos}) < 3:
        raise ValueError(
            "a search by decoder and CTC needs a blank (0), model.bos and model.eos that differ: leave out model.bos "
            "and model.eos, or set task.decode.ctc_weight=0"
        )


def check_translator(model_class: type, model: Any, tokens: str, ctc_weight: float) -> None:
    """Raise ValueError when a model has no decoder, or does not support these tokens or this loss."""
    if issubclass(model_class, Whisper):
        if tokens != "pretrained" or ctc_weight:
            raise ValueError(
                "model.kind whisper has its checkpoint's tokens and no CTC: set task.tokens=pretrained and "
                "task.ctc_weight=0"
            )
        return
    check_token_source(model, tokens)
    if not hasattr(model_class, "attend"):
        raise ValueError(
            f"task.kind translation needs a decoder, which {model_class.__name__} lacks: "
            "set model.kind=conformer, crdnn or whisper"
        )
    if not getattr(model, "decoder_layers", 1):
        raise ValueError("task.kind translation needs a decoder: set model.decoder_layers")


def check_token_source(model: Any, tokens: str) -> None:
    """Raise ValueError for pretrained tokens without a checkpoint, and for `bos` or `eos` that texts may contain."""
    if tokens == "pretrained" and getattr(model, "init", None) is None and not hasattr(model, "folder"):
        raise ValueError(
            "task.tokens=pretrained needs a checkpoint: set model.kind=whisper, or model.init=RUN/model/model.pt, or "
            "choose characters, unigram or bpe"
        )
    if tokens != "pretrained" and any(getattr(model, name, None) for name in ("bos", "eos")):
        raise ValueError(
            "model.bos and model.eos would be tokens of the text, which task.tokens learns: leave them out, or set "
            "task.tokens=pretrained"
        )


def check_same_tokens(tokeniser: Tokeniser, model: Any, key: str = "task.tokens", inside: str = "") -> None:
    """Check tokens learnt from this run's texts against those beside the checkpoint that `model.init` names, if any.

    Other tokens would give the outputs of the checkpoint another meaning. `model`: the model's settings. `key`: chooses
    the tokens. `inside`: the checkpoint's folder that holds them. ValueError: the tokens differ.
    """
    init = getattr(model, "init", None)
    if init is None or (path := tokeniser_file(Path(init).parent / inside)) is None:
        return
    theirs, ours = load_tokeniser(path.parent).tokens, tokeniser.tokens
    if theirs == ours:
        return
    pairs = enumerate(zip_longest(theirs, ours))
    number, (there, here) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    first = f"token {number} is {_shown(there)} there and {_shown(here)} here"
    raise ValueError(
        f"model.init: {init} was trained with the {len(theirs)} tokens of {path}, but this run has learnt {len(ours)} "
        f"other tokens from its own texts ({first}): set {key}=pretrained, or remove {path} if it does not belong to "
        "the checkpoint"
    )


def _shown(token: str | None) -> str:
    return "missing" if token is None else repr(token)


def effect_of_padding(model: Recogniser, features: Tensor) -> str | None:
    """What changes in the output of an utterance, encoded beside one of twice its length, in words. None: nothing.

    `features` [1, T, bins]: of the utterance. The log-probabilities are compared, or a model's states if it has no CTC.
    """
    score = getattr(model, "ctc", lambda hidden: hidden)
    frames = features.shape[1]
    batch = torch.cat([features.repeat(1, 2, 1), pad(features, (0, 0, 0, frames))])
    with torch.no_grad():
        hidden, lengths = model.encode(features, torch.tensor([frames]))
        states, both = model.encode(batch, torch.tensor([2 * frames, frames]))
        if lengths[0] != both[1]:
            return f"the length in frames changes from {lengths[0]:g} to {both[1]:g}"
        last = int(lengths[0])
        found = float((score(hidden)[0, :last] - score(states)[1, :last]).abs().max())
    return f"log-probabilities change by up to {found:.2g}" if found > ROUNDING else None


def check_seconds(data: Utterances, window: int) -> None:
    """Raise ValueError that names an utterance longer than Whisper's window of `window` frames."""
    if (too_long := data.lengths > window + OVERHANG).any():
        position = int(too_long.argmax())
        raise ValueError(
            f"utterance {data.ids[position]} is {data.lengths[position] / FRAMES_A_SECOND:g} s long, and "
            f"{int(too_long.sum())} utterances exceed Whisper's window of {window / FRAMES_A_SECOND:g} s: "
            "leave them out (data.options.max_seconds), or cut them"
        )


def check_tokens(data: Utterances, targets: Sequence[Sequence[int]], longest: int) -> None:
    """Raise ValueError that names a transcript of `longest` or more tokens; Whisper's decoder adds the end token."""
    for utterance, target in zip(data.ids, targets, strict=True):
        if len(target) >= longest:
            raise ValueError(
                f"utterance {utterance} has {len(target)} tokens, but Whisper writes at most {longest - 1}: cut it"
            )
