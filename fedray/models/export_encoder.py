"""Write a trained encoder as a checkpoint of transformers, with its tokeniser and its preprocessor.

`AutoModelForCTC.from_pretrained(folder)` loads a recogniser, `AutoModelForAudioClassification` a classifier. A
recogniser that transformers has no class for (Whisper's encoder with CTC, a weighted mean of layers) is written as a
state dict, model.pt, beside config.json.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedray.models.encoder import Encoder, EncoderClassifier
from fedray.models.encoder_family import PREPROCESSOR, VOCABULARY
from fedray.models.encoder_files import encoder_of, quiet, with_head
from fedray.models.encoder_states import PretrainedEncoder
from fedray.models.whisper import FRAMES_A_SECOND
from fedray.storage.serialize import save_tensors

TOKENISER = (VOCABULARY, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json")
BLANK, DELIMITERS = "<pad>", ("|", "_", "\u2581")


def save_recogniser(model: Encoder, tokeniser: Any, folder: Path) -> None:
    """Write a recogniser into a folder that exists."""
    config = _config(model)
    if model.places is not None:
        for name in TOKENISER:
            if (path := model.checkpoint.folder / name).is_file():
                shutil.copyfile(path, folder / name)
    else:
        config.pad_token_id = 0
        config.bos_token_id = config.eos_token_id = None
        _save_tokens(tokeniser, folder)
    config.vocab_size = model.ctc_head.out_features
    _save_preprocessor(model, folder)
    if model.whisper or model.layer_weights is not None:
        config.save_pretrained(folder)
        save_tensors({name: value.detach().clone() for name, value in model.state_dict().items()}, folder / "model.pt")
        return
    _save(model, config, "ctc", {"lm_head": model.ctc_head}, folder)


def save_classifier(model: EncoderClassifier, labels: Sequence[str], folder: Path) -> None:
    """Write a classifier into a folder that exists. `labels`: the names of its classes."""
    config = _config(model)
    config.id2label, config.label2id = dict(enumerate(labels)), {label: at for at, label in enumerate(labels)}
    config.use_weighted_layer_sum = model.layer_weights is not None
    _save_preprocessor(model, folder)
    _save(model, config, "classification", {"projector": model.projector, "classifier": model.classifier}, folder)


def _config(model: PretrainedEncoder) -> Any:
    """The checkpoint's configuration with the sizes of the model."""
    config = copy.deepcopy(model.checkpoint.config)
    layers = model.checkpoint.family.layers
    for name in (layers, *(["max_source_positions"] if model.whisper else [])):
        setattr(config, name, getattr(model.encoder.config, name))
    return config


def _save(model: PretrainedEncoder, config: Any, task: str, parts: Mapping[str, nn.Module], folder: Path) -> None:
    with torch.device("meta"):  # takes no memory: the trained tensors are put in
        full = with_head(config, task)(config)
    theirs = encoder_of(full)
    prefix = next(name for name, module in full.named_modules() if module is theirs)
    state: dict[str, Tensor] = {f"{prefix}.{name}": value for name, value in model.encoder.state_dict().items()}
    for part, module in parts.items():
        state |= {f"{part}.{name}": value for name, value in module.state_dict().items()}
    if model.layer_weights is not None:
        state["layer_weights"] = model.layer_weights.detach()
    full.load_state_dict(state, assign=True)
    with quiet():
        full.save_pretrained(folder)


def _save_preprocessor(model: PretrainedEncoder, folder: Path) -> None:
    """Write preprocessor_config.json: how samples become the model's input."""
    found, described = model.checkpoint, dict(model.checkpoint.preprocessor)
    if found.family.features == "whisper":
        import transformers

        window = 2 * model.encoder.config.max_source_positions
        if window % FRAMES_A_SECOND == 0:  # transformers knows windows of whole seconds
            seconds, bins = window // FRAMES_A_SECOND, model.encoder.config.num_mel_bins
            make: Any = transformers.WhisperFeatureExtractor
            make(feature_size=bins, chunk_length=seconds).save_pretrained(folder)
        return
    if not described and found.family.features == "waveform":
        import transformers

        default: Any = transformers.Wav2Vec2FeatureExtractor
        default(return_attention_mask=True).save_pretrained(folder)
    elif described:
        (folder / PREPROCESSOR).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def _save_tokens(tokeniser: Any, folder: Path) -> None:
    """Write fedray's tokens: characters also as transformers' CTC tokeniser, which has no sub-words."""
    tokeniser.save(folder)
    tokens: list[str] = tokeniser.tokens
    if any(len(token) > 1 for token in tokens[1:]):
        return
    import transformers

    delimiter = next(sign for sign in DELIMITERS if sign not in tokens)
    named = [BLANK, *(delimiter if token == " " else token for token in tokens[1:])]
    path = folder / VOCABULARY
    path.write_text(json.dumps({token: at for at, token in enumerate(named)}, ensure_ascii=False), encoding="utf-8")
    special = {"unk_token": BLANK, "pad_token": BLANK, "word_delimiter_token": delimiter}
    make: Any = transformers.Wav2Vec2CTCTokenizer
    make(str(path), bos_token=None, eos_token=None, **special).save_pretrained(folder)
