"""The tokens of a checkpoint, for `task.tokens: pretrained`: beside `model.init`, or in `model.folder`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from fedray.data.text.ctc_vocabulary import CTCVocabulary
from fedray.data.text.pretrained_tokeniser import PretrainedTokeniser
from fedray.data.text.tokenisers import BLANK, SentencePiece, Tokeniser, load_tokeniser
from fedray.models.encoder import Encoder, vocabulary
from fedray.models.speechbrain_folder import SpeechBrainCTC, tokens_of
from fedray.models.whisper import Whisper, checked_folder

AnyTokeniser = Tokeniser | PretrainedTokeniser | CTCVocabulary


def checkpoint_tokens(model_class: type[nn.Module], settings: Any, texts: Iterable[str]) -> AnyTokeniser:
    """The tokeniser of a model's checkpoint. `settings`: the model's; `texts`: they say which case the texts have.

    ValueError: the checkpoint has none, or it is damaged.
    """
    if issubclass(model_class, Whisper):
        return PretrainedTokeniser.load(checked_folder(settings))
    if getattr(settings, "init", None) is not None:
        return load_tokeniser(Path(settings.init).parent)
    if issubclass(model_class, Encoder):
        return CTCVocabulary.load(vocabulary(settings), texts)
    if issubclass(model_class, SpeechBrainCTC):
        return _of_speechbrain(settings)
    raise ValueError("task.tokens=pretrained needs a checkpoint: set model.init, or choose characters, unigram or bpe")


def _of_speechbrain(settings: Any) -> SentencePiece | CTCVocabulary:
    tokens, blank = tokens_of(settings)
    if isinstance(tokens, list):
        order = [blank, *(token for token in range(len(tokens)) if token != blank)]
        return CTCVocabulary([BLANK, *(tokens[token] for token in order[1:])], order)
    if blank != 0:
        raise ValueError(f"model.folder {settings.folder}: CTC's blank is token {blank} of its sub-words, not 0")
    return SentencePiece(tokens)
