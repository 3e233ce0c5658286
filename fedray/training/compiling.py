"""Compile the loops of a model before the first client needs them.

numba compiles a loop when it first runs and keeps it in fedray's cache. With an empty cache, this takes half a minute
and delays the seed model. So a run that finds no compiled loops compiles them while its data are prepared.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import cast

import torch
from torch import nn

from fedray.core.settings import Choice
from fedray.models import MODELS
from fedray.models.audio_cnn import AudioCNN
from fedray.models.conformer import Conformer
from fedray.models.crdnn import CRDNN
from fedray.models.crnn import CRNN
from fedray.models.kernels import loops_folder
from fedray.models.language_model import NGram
from fedray.training.decoding.beam import BeamSearch
from fedray.training.decoding.search import DecodeSettings
from fedray.training.recognisers import Recogniser, by_ctc
from fedray.training.speech_to_text import aligned_loss

OUTPUTS = 8
FRAMES = (120, 100)
TOKENS = [[1, 2, 3], [4, 5, 6]]


def marker(model: Choice) -> Path | None:
    """The file that marks the loops of a kind of model as compiled; None for a model without loops.

    Loops that only some settings need (`front: conv2d`) are compiled when they first run.
    """
    if not issubclass(MODELS[model.kind], (AudioCNN, Conformer, CRDNN, CRNN)):
        return None
    return loops_folder() / f"compiled-{model.kind}"


def compile_loops(model: Choice, bins: int) -> None:
    """Run each loop once on two short examples: gradients, evaluation, and a recogniser's beam search."""
    torch.set_num_threads(1)
    network = MODELS[model.kind](model.settings, bins, OUTPUTS)
    for training in (True, False):
        network.train(training)
        with torch.set_grad_enabled(training):
            loss = _loss(network, torch.randn(len(FRAMES), max(FRAMES), bins), torch.tensor(FRAMES))
        if training:
            loss.backward()  # type: ignore[no-untyped-call]
    done = marker(model)
    if done is not None:
        with suppress(OSError):  # a cache that this user cannot write to holds no loops either
            done.parent.mkdir(parents=True, exist_ok=True)
            done.touch()


def _loss(network: nn.Module, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    if not isinstance(network, (Conformer, CRDNN)):
        outputs: torch.Tensor = network(features, lengths)
        return outputs.square().sum()
    log_probs, lengths = by_ctc(cast(Recogniser, network), features, lengths)
    if not network.training:
        BeamSearch(DecodeSettings(), str, NGram.train(TOKENS, vocabulary=OUTPUTS))(log_probs, lengths)
    sizes = torch.tensor([len(row) for row in TOKENS])
    return aligned_loss(log_probs, torch.tensor(TOKENS).flatten(), lengths, sizes)
