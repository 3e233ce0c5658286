"""Tiny checkpoints of transformers' speech encoders with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForAudioClassification,
    AutoModelForCTC,
    SeamlessM4TFeatureExtractor,
    Wav2Vec2CTCTokenizer,
    Wav2Vec2FeatureExtractor,
    WhisperFeatureExtractor,
)

WIDTH = 32
SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": WIDTH,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "vocab_size": 8,
    "pad_token_id": 0,
    "mask_time_length": 2,
    "classifier_proj_size": 16,
}
WAVEFORM = {
    "conv_dim": [16, 16, 16],
    "conv_kernel": [10, 3, 3],
    "conv_stride": [5, 4, 4],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "num_codevectors_per_group": 8,
    "codevector_dim": 8,
    "proj_codevector_dim": 8,
}
GROUP, LAYER = {"feat_extract_norm": "group"}, {"feat_extract_norm": "layer"}
WHISPER = {
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_mel_bins": 80,
    "max_source_positions": 100,  # a window of two seconds
    "vocab_size": 60,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "decoder_start_token_id": 1,
    "classifier_proj_size": 16,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "wav2vec2": ("wav2vec2", WAVEFORM | GROUP),
    "wav2vec2 layer norm": ("wav2vec2", WAVEFORM | LAYER | {"do_stable_layer_norm": True, "conv_bias": True}),
    "wav2vec2 adapter": ("wav2vec2", WAVEFORM | GROUP | {"add_adapter": True, "num_adapter_layers": 2}),
    "hubert": ("hubert", WAVEFORM | GROUP),
    "wavlm": ("wavlm", WAVEFORM | GROUP | {"num_buckets": 16, "max_bucket_distance": 32}),
    "data2vec-audio": ("data2vec-audio", WAVEFORM | {"conv_pos_kernel_size": 5, "num_conv_pos_embeddings": 3}),
    "wav2vec2-conformer": (
        "wav2vec2-conformer",
        WAVEFORM | LAYER | {"conv_depthwise_kernel_size": 5, "position_embeddings_type": "relative"},
    ),
    "wav2vec2-conformer rotary": (
        "wav2vec2-conformer",
        WAVEFORM | GROUP | {"conv_depthwise_kernel_size": 5, "position_embeddings_type": "rotary"},
    ),
    "wav2vec2-bert": ("wav2vec2-bert", {"conv_depthwise_kernel_size": 5}),
    "wav2vec2-bert adapter": (
        "wav2vec2-bert",
        {"conv_depthwise_kernel_size": 5, "add_adapter": True, "num_adapter_layers": 1},
    ),
    "whisper": ("whisper", WHISPER),
}


def write_encoder(folder: Path, kind: str = "wav2vec2", head: str | None = None, **changes: Any) -> Path:
    """Write a checkpoint as `save_pretrained` does, and return the folder. `head`: ctc, classification or none."""
    model_type, sizes = KINDS[kind]
    common = {} if model_type == "whisper" else SIZES
    config = AutoConfig.for_model(model_type, **{**common, **sizes, **changes})
    make: Any = {"ctc": AutoModelForCTC, "classification": AutoModelForAudioClassification}.get(head or "", AutoModel)
    torch.manual_seed(0)
    model = make.from_config(config)
    for name, parameter in model.named_parameters():  # fresh norms and biases would hide an error
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(parameter, 1.0 if name.endswith("weight") else 0.0, 0.3)
    for name, buffer in model.named_buffers():
        if "running" in name:
            torch.nn.init.uniform_(buffer, 0.5, 1.5)
    model.save_pretrained(folder)
    extractor: Any = {"whisper": WhisperFeatureExtractor, "wav2vec2-bert": SeamlessM4TFeatureExtractor}.get(
        model_type, Wav2Vec2FeatureExtractor
    )
    extractor().save_pretrained(folder)
    return folder


def write_vocabulary(folder: Path, letters: str = "ABCD", pad_last: bool = False) -> Path:
    """Write the files of a CTC tokeniser with these letters: 4 more tokens, the padding first or last."""
    special = ["<unk>", "|", *letters, "<s>"]
    tokens = [*special, "<pad>"] if pad_last else ["<pad>", *special]
    vocabulary = folder / "letters.json"
    vocabulary.write_text(json.dumps({token: place for place, token in enumerate(tokens)}), encoding="utf-8")
    Wav2Vec2CTCTokenizer(str(vocabulary), bos_token="<s>", eos_token="<s>").save_pretrained(folder)
    vocabulary.unlink()
    return folder
