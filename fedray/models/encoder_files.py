"""Build transformers' models, and load their weights from safetensors."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fedray.models.checkpoint import check_weights
from fedray.models.encoder_family import Described

# Learnt in pre-training; checkpoints that were tuned without masks lack it.
MASK = "masked_spec_embed"
POSITIONS = "embed_positions.weight"  # of Whisper's encoder, cut to the window


def build(config: Any, whisper: bool) -> nn.Module:
    """An encoder with random weights from torch's global generator. `whisper`: the encoder of a Whisper.

    Where a layer adds learnt positions to the attention, torch's fast kernels serve neither gradients nor several
    clients at once.
    """
    from transformers import AutoModel
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    auto: Any = AutoModel
    encoder: nn.Module = (
        WhisperEncoder(config) if whisper else auto.from_config(config, attn_implementation=attention(config))
    )
    return encoder


def attention(config: Any) -> str | None:
    """How transformers computes attention in models of this configuration; None: as it likes."""
    return "eager" if hasattr(config, "position_embeddings_type") else None


def with_head(config: Any, task: str) -> Any:
    """transformers' class of a model with a head, for `task` ctc or classification."""
    from transformers import WhisperForAudioClassification
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING,
        MODEL_FOR_CTC_MAPPING,
    )

    if config.model_type == "whisper":  # of which transformers has no CTC
        return WhisperForAudioClassification
    classes: Any = MODEL_FOR_CTC_MAPPING if task == "ctc" else MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING
    return classes[type(config)]


def encoder_of(model: Any) -> nn.Module:
    """The encoder inside one of transformers' models with a head."""
    encoder: nn.Module = model.encoder if hasattr(model, "encoder") else getattr(model, model.base_model_prefix)
    return encoder


def load(encoder: Any, found: Described, task: str, parts: Mapping[str, nn.Linear]) -> None:
    """Load a checkpoint's weights into the encoder and, where it has them, into the layers of its head.

    `parts`: transformers' name of a layer -> the layer. ValueError: weights are missing, or of another shape.
    """
    check_weights(found.folder)
    config = copy.deepcopy(found.config)
    setattr(config, found.family.layers, getattr(encoder.config, found.family.layers))
    with quiet():
        full, told = with_head(config, task).from_pretrained(
            found.folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    absent = {*told["missing_keys"], *(name for name, *_ in told["mismatched_keys"])}
    theirs = encoder_of(full)
    prefix = next(name for name, module in full.named_modules() if module is theirs) + "."
    wrong = sorted(name for name in absent if name.startswith(prefix) and not name.endswith(MASK))
    if wrong:
        some = ", ".join(wrong[:5])
        raise ValueError(
            f"model.folder {found.folder}: {len(wrong)} weights are missing or of another shape, among them {some}: "
            "fetch the checkpoint again"
        )
    state = theirs.state_dict()
    if POSITIONS in state:
        state[POSITIONS] = state[POSITIONS][: encoder.config.max_source_positions]
    encoder.load_state_dict(state)
    for name, layer in parts.items():
        if f"{name}.weight" not in absent and getattr(full, name).weight.shape == layer.weight.shape:
            layer.load_state_dict(getattr(full, name).state_dict())


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' bars and lines about new heads off the terminal."""
    from transformers.utils import logging as found

    logging: Any = found
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
