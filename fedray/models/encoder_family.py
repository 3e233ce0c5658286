"""The families of pre-trained encoders in transformers: what they read, and how many frames they leave.

| model type | what it reads |
|---|---|
| wav2vec2, hubert, wavlm, data2vec-audio, wav2vec2-conformer | waveforms |
| wav2vec2-bert | Kaldi's log-mels, two frames at once |
| whisper, without its decoder | Whisper's log-mels in a window of fixed length |
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedray.models.checkpoint import CONFIG, INSTALL, read_object

PREPROCESSOR = "preprocessor_config.json"
VOCABULARY = "vocab.json"
ATTENTION = "(q|k|v|out)_proj"


@dataclass(frozen=True)
class Family:
    """What models of a type have in common. Patterns are regular expressions for names of parameters."""

    features: str  # features.kind
    layers: str = "num_hidden_layers"  # the key of config.json with the number of layers
    front: str | None = "feature_extractor"  # pattern of the convolutions that read a waveform
    # patterns of the weights that get adapters: the projections of self-attention, and both feed-forward matrices
    adapted: tuple[str, ...] = (f"attention.{ATTENTION}", "feed_forward.*dense")


FAMILIES: Mapping[str, Family] = {
    "wav2vec2": Family("waveform"),
    "hubert": Family("waveform"),
    "wavlm": Family("waveform"),
    "data2vec-audio": Family("waveform"),
    "wav2vec2-conformer": Family("waveform", adapted=("self_attn.linear_(q|k|v|out)", "ffn.*dense")),
    "wav2vec2-bert": Family("fbank", front=None, adapted=("self_attn.linear_(q|k|v|out)", "ffn.*dense")),
    "whisper": Family("whisper", "encoder_layers", None, (f"self_attn.{ATTENTION}", "fc[12]")),
}


@dataclass(frozen=True)
class Described:
    """A checkpoint, as its JSON files describe it."""

    folder: Path
    config: Any  # transformers' configuration
    preprocessor: Mapping[str, Any]  # preprocessor_config.json; empty without one

    @property
    def family(self) -> Family:
        return FAMILIES[self.config.model_type]

    @property
    def vocabulary(self) -> Path | None:
        """The file of CTC's tokens; None: the folder has none."""
        path = self.folder / VOCABULARY
        return path if path.is_file() and self.family.features != "whisper" else None

    @property
    def features(self) -> dict[str, Any]:
        """The section `features` that the checkpoint needs."""
        wanted: dict[str, Any] = {"kind": self.family.features}
        if self.family.features == "whisper":
            wanted["bins"] = self.config.num_mel_bins
        elif self.family.features == "fbank":
            wanted["bins"] = self.config.feature_projection_input_dim
        else:
            wanted["sample_rate"] = self.preprocessor.get("sampling_rate", 16_000)
        return wanted

    @property
    def layers(self) -> int:
        """Layers of the encoder."""
        return int(getattr(self.config, self.family.layers))

    @property
    def window(self) -> int:
        """Frames of Whisper's window."""
        return 2 * int(self.config.max_source_positions)

    @property
    def shortest(self) -> int:
        """The fewest samples that leave a frame."""
        samples = 1
        for kernel, stride in reversed(self._convolutions()):
            samples = (samples - 1) * stride + kernel
        return samples

    def levels(self, lengths: Tensor) -> dict[str, Tensor]:
        """What is counted -> how many of it [B] utterances with these numbers [B] of feature frames have.

        `first`: frames after the first convolution; `frames`: frames that the layers read; `adapter 0`, `adapter 1`,
        ...: frames before each convolution behind them; `hidden`: frames of the output.
        """
        found, left = {}, lengths
        for place, (kernel, stride) in enumerate(self._convolutions()):
            left = shortened(left, kernel, stride)
            if place == 0:
                found["first"] = left
        found["frames"] = left
        config = self.config
        for place in range(config.num_adapter_layers if getattr(config, "add_adapter", False) else 0):
            found[f"adapter {place}"] = left
            padding = config.adapter_kernel_size // 2 if self.family.features == "fbank" else 1
            left = shortened(left + 2 * padding, config.adapter_kernel_size, config.adapter_stride)
        return found | {"hidden": left}

    def _convolutions(self) -> list[tuple[int, int]]:
        """Kernel and stride of the convolutions over a waveform."""
        if self.family.features != "waveform":
            return []
        return list(zip(self.config.conv_kernel, self.config.conv_stride, strict=True))


def shortened(lengths: Tensor, kernel: int, stride: int) -> Tensor:
    """Frames [B] after a convolution without padding; 0 if there are too few."""
    return (torch.div(lengths - kernel, stride, rounding_mode="floor") + 1).clamp(min=0)


def described(folder: Path) -> Described:
    """Read the JSON files of a checkpoint. ValueError: they are damaged, or the model is of no known type."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise ValueError(f"model.folder: there is no folder {folder.absolute()}")
    if not path.is_file():
        raise ValueError(f"model.folder {folder} has no {CONFIG}: set it to a checkpoint that save_pretrained wrote")
    return _described(folder, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _described(folder: Path, changed: int) -> Described:
    found = read_object(folder / CONFIG, "model_type")
    if found["model_type"] not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ValueError(f"{folder / CONFIG}: model_type {found['model_type']!r} is not an encoder of these: {known}")
    try:
        from transformers import AutoConfig
    except ImportError as error:
        raise ValueError(f"model.kind encoder {INSTALL}") from error
    try:  # it fills in defaults, which a file may leave out
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # it raises many kinds for values of other types
        raise ValueError(f"{folder / CONFIG}: transformers cannot read it ({_line(error)}): fetch it again") from error
    path = folder / PREPROCESSOR
    return Described(folder, config, read_object(path) if path.is_file() else {})


def _line(error: Exception) -> str:
    """The words of an error in one line."""
    return " ".join(str(error).split())
