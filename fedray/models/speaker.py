"""Speaker embeddings by SpeechBrain's ECAPA-TDNN, with the weights `embedding_model.ckpt` of spkrec-ecapa-voxceleb."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from speechbrain.lobes.features import Fbank
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

SAMPLE_RATE, BINS = 16_000, 80


def embed(waveform: npt.NDArray[np.float32], weights: str) -> npt.NDArray[np.float32]:
    """A waveform [samples] at 16 kHz -> an embedding [dimensions] of Euclidean norm 1.

    `weights`: the path of embedding_model.ckpt.
    """
    fbank, model = _loaded(weights)
    with torch.inference_mode():
        features = fbank(torch.from_numpy(waveform)[None])
        features = features - features.mean(dim=1, keepdim=True)  # the recipe's sentence-wise normalisation
        vector = model(features)[0, 0]
    embedding: npt.NDArray[np.float32] = torch.nn.functional.normalize(vector, dim=0).numpy()
    return embedding


def check(weights: str) -> None:
    """Raise ValueError if the file is missing, or holds no weights of an ECAPA-TDNN."""
    _loaded(weights)


@functools.lru_cache(maxsize=1)
def _loaded(weights: str) -> tuple[Fbank, ECAPA_TDNN]:
    """The features and the model. The model's sizes follow from the weights."""
    if not Path(weights).is_file():
        raise ValueError(f"the speaker model's weights {weights} do not exist: correct the path")
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
        blocks = sorted({int(name.split(".")[1]) for name in state if name.startswith("blocks.")})
        channels = [state["blocks.0.conv.conv.weight"].shape[0]]
        channels += [state[f"blocks.{block}.tdnn1.conv.conv.weight"].shape[0] for block in blocks[1:]]
        channels.append(state["mfa.conv.conv.weight"].shape[0])
        attention, dimensions = state["asp.tdnn.conv.conv.weight"].shape[0], state["fc.conv.weight"].shape[0]
        bottleneck = state["blocks.1.se_block.conv1.conv.weight"].shape[0]
        model = ECAPA_TDNN(
            BINS, lin_neurons=dimensions, channels=channels, attention_channels=attention, se_channels=bottleneck
        )
        model.load_state_dict(state)
    except Exception as error:  # torch.load raises many kinds
        raise ValueError(
            f"{weights}: not the weights of a SpeechBrain ECAPA-TDNN (embedding_model.ckpt): {error}"
        ) from error
    return Fbank(sample_rate=SAMPLE_RATE, n_mels=BINS), model.eval()
