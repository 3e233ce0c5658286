"""A pre-trained encoder of transformers without a head: features in, hidden states out.

Baevski, Zhou, Mohamed, Auli. wav2vec 2.0: A Framework for Self-Supervised Learning of Speech Representations. NeurIPS
2020 (masks of time, layer drop). Yang et al. SUPERB. Interspeech 2021 (the weighted mean of layers).

The weights have transformers' names behind `encoder.`. An utterance's output does not depend on the other utterances of
its batch (`fedray.models.speech_only`).
"""

from __future__ import annotations

import copy
import re
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.parametrize import ParametrizationList

from fedray.core.ranges import Natural, Part, WhisperSeconds
from fedray.models.checkpoint import located
from fedray.models.encoder_family import Described, described
from fedray.models.encoder_files import build
from fedray.models.padding import padding, several_clients
from fedray.models.speech_only import BatchNorm, GroupNorm, Speech, WeightNorm, silence_before, spans
from fedray.models.whisper import FRAMES_A_SECOND, OVERHANG, WhisperSettings, in_window

EVALUATION_BATCH = 8  # utterances: a base model takes about 100 MB for each while it scores 15 s of speech
WEIGHTED = "weighted"
EPSILON = 1e-7  # of the variance, as in transformers' feature extractors


@dataclass(frozen=True)
class EncoderSettings:
    """Which checkpoint, and how to tune it."""

    size_key: ClassVar[str] = "layers"  # the setting that FedMLAC's personal models differ in

    folder: str | None = None  # folder of the checkpoint, or its name on Hugging Face's hub, OWNER/MODEL
    revision: str | None = None  # of a name on the hub: branch, tag or commit; null: its main branch
    layers: str = "all"  # all | a number: the first ones | weighted: a mean of all layers' outputs, with learnt weights
    # Regular expressions: parameters whose names match stay as they are, and travel once. null: the convolutions that
    # read the waveform. ["^encoder"]: all but the head.
    frozen: list[str] | None = None
    layer_drop: Part | None = None  # chance that training skips a layer; null: as config.json says
    time_mask: Part | None = None  # share of the frames that training masks; null: as config.json says
    # Seconds of the window of Whisper's encoder. Shorter windows cost less and give other outputs [ours]. null: the
    # window of the checkpoint.
    seconds: WhisperSeconds | None = None
    # FedMem: the layer whose output is the key of a frame in a memory, from 0, the input of the first layer. null: the
    # output of the encoder.
    keys: Natural | None = None
    init: str | None = None  # a file with initial weights, a state dict, instead of the folder's weights

    def __post_init__(self) -> None:
        if self.layers not in ("all", WEIGHTED) and not re.fullmatch("[1-9][0-9]*", self.layers):
            raise ValueError(f"model.layers must be all, weighted or a number of layers, not {self.layers!r}")
        if self.layers == WEIGHTED and self.layer_drop:
            raise ValueError("model.layers=weighted needs the output of every layer: set model.layer_drop=0")
        for pattern in self.frozen or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"model.frozen: {pattern!r} is not a regular expression ({error})") from error


def checkpoint_of(settings: EncoderSettings) -> Described:
    """The checkpoint that the settings name. ValueError: there is none, or it is not an encoder's."""
    if settings.folder is None:
        raise ValueError(
            "model.folder is missing: set it to the folder of a checkpoint, or to its name on Hugging Face's hub"
        )
    return described(located(settings.folder, settings.revision))


class PretrainedEncoder(nn.Module):
    """The part that recogniser and classifier share: features in, hidden states out."""

    Settings: ClassVar[type] = EncoderSettings
    evaluation_batch: ClassVar[int] = EVALUATION_BATCH
    encoder: Any  # transformers' model, whose methods and attributes differ by its type

    def __init__(self, settings: EncoderSettings | WhisperSettings, bins: int) -> None:
        """ValueError: the checkpoint cannot be read, or the settings or the bins are not its own."""
        super().__init__()
        if isinstance(settings, WhisperSettings):
            settings = EncoderSettings(settings.folder, settings.revision, seconds=settings.seconds, init=settings.init)
        self.settings, self.checkpoint = settings, checkpoint_of(settings)
        found, config = self.checkpoint, self._config()
        if bins != (wanted := found.features.get("bins", 1)):
            raise ValueError(f"model.folder {found.folder} needs {wanted} bins: set features.bins={wanted}, not {bins}")
        self.whisper = found.family.features == "whisper"
        self.encoder = build(config, self.whisper)
        self.normalises = found.preprocessor.get("do_normalize", True)
        self.width = int(getattr(config, "output_hidden_size", None) or config.hidden_size)
        self.layer_weights: nn.Parameter | None = None
        if settings.layers == WEIGHTED:
            count = int(getattr(config, found.family.layers)) + 1  # with the input of the first layer
            self.layer_weights = nn.Parameter(torch.full((count,), 1.0 / count))
        self.speech = Speech()
        self._read_no_padding()
        self.time_mask = config.mask_time_prob if settings.time_mask is None else settings.time_mask
        if hasattr(self.encoder, "feature_projection"):
            self.encoder.feature_projection.register_forward_hook(self._masked)
        # Clients' models run as one where no utterance is padded and no layer is skipped.
        drop = config.encoder_layerdrop if self.whisper else config.layerdrop
        self.clients_together = None if drop else "any shapes" if self.whisper else "equal lengths"

    def _config(self) -> Any:
        """transformers' configuration for these settings."""
        found, settings = self.checkpoint, self.settings
        config = copy.deepcopy(found.config)
        if settings.layers.isdecimal():
            if int(settings.layers) > found.layers:
                raise ValueError(f"model.layers={settings.layers}: {found.folder} has {found.layers} layers")
            setattr(config, found.family.layers, int(settings.layers))
        drop = "encoder_layerdrop" if found.family.features == "whisper" else "layerdrop"
        if settings.layers == WEIGHTED or settings.keys is not None or settings.layer_drop is not None:
            setattr(config, drop, settings.layer_drop or 0.0)
        if settings.layers == WEIGHTED and getattr(config, "add_adapter", False):
            raise ValueError(
                f"model.layers=weighted: {found.folder} has an adapter behind its layers, which the mean of the layers "
                "would leave out: set model.layers=all"
            )
        most = int(settings.layers) if settings.layers.isdecimal() else found.layers
        if settings.keys is not None and (settings.keys > most or getattr(config, "add_adapter", False)):
            raise ValueError(f"model.keys={settings.keys}: {found.folder} has outputs 0 to {most} of as many frames")
        if settings.seconds is not None:
            if found.family.features != "whisper":
                raise ValueError("model.seconds is for Whisper's encoder: others read utterances of any length")
            if settings.seconds * FRAMES_A_SECOND > found.window:
                whole = found.window / FRAMES_A_SECOND
                raise ValueError(
                    f"model.seconds={settings.seconds} is more than the window of {found.folder}: {whole:g} s"
                )
            config.max_source_positions = round(settings.seconds * FRAMES_A_SECOND / 2)
        config.apply_spec_augment = False  # `_masked` draws the masks
        return config

    def freeze(self) -> None:
        """Freeze what `model.frozen` names. ValueError: a pattern has no match."""
        front = self.checkpoint.family.front
        patterns = self.settings.frozen
        names = dict(self.named_parameters())
        for pattern in ([front] if front else []) if patterns is None else patterns:
            matched = [name for name in names if re.search(pattern, name)]
            if not matched:
                raise ValueError(f"model.frozen: {pattern!r} matches no parameter; there are {', '.join(names)}")
            for name in matched:
                names[name].requires_grad_(False)
        extractor = getattr(self.encoder, "feature_extractor", None)
        if extractor is not None and not any(p.requires_grad for p in extractor.parameters()):
            extractor._freeze_parameters()  # else it asks for gradients of the waveform

    def load_pretrained(self) -> None:
        """Load the checkpoint's weights. ValueError: they are missing, or not those of such a model."""
        raise NotImplementedError

    def states(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, T, bins] and lengths [B] in frames -> hidden states [B, T', width] and their lengths [B]."""
        if self.whisper:
            return self._states_of_window(features, lengths)
        # The clients that share a call have utterances of one length.
        padded = not several_clients() and bool((lengths < features.shape[1]).any())
        if not several_clients() and (shortest := int(lengths.min())) < self.checkpoint.shortest:
            raise ValueError(
                f"an utterance of {shortest:,} samples is too short: the encoder needs {self.checkpoint.shortest:,}"
            )
        levels = self.checkpoint.levels(lengths)
        inputs = features
        if self.checkpoint.family.features == "waveform":
            inputs = normalised(features[..., 0], lengths) if self.normalises else features[..., 0]
        if not padded:
            return self._run(inputs), levels["hidden"]
        with self.speech.of(levels), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Support for mismatched key_padding_mask")  # of WavLM's attention
            mask = (~padding(lengths, features.shape[1])).long()
            return self._run(inputs, attention_mask=mask), levels["hidden"]

    def _states_of_window(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """`states` of Whisper's encoder. The lengths count the speech; the silence after it is encoded too."""
        window = 2 * self.encoder.max_source_positions
        if not several_clients() and (longest := int(lengths.max())) > window + OVERHANG:
            raise ValueError(
                f"an utterance of {longest / FRAMES_A_SECOND:g} s is too long: the encoder's window has "
                f"{window / FRAMES_A_SECOND:g} s"
            )
        hidden = self._run(in_window(features, lengths, window).transpose(1, 2))
        return hidden, ((lengths + 1) // 2).clamp(max=hidden.shape[1])

    def _run(self, inputs: Tensor, **arguments: Any) -> Tensor:
        """The output of the last layer, or the mean over all layers' with the learnt weights; `keys` follow it."""
        if several_clients() and inputs.device.type == "cpu":  # its fast kernel runs one client after the other
            with sdpa_kernel(SDPBackend.MATH):
                return self._encoded(inputs, arguments)
        return self._encoded(inputs, arguments)

    def _encoded(self, inputs: Tensor, arguments: dict[str, Any]) -> Tensor:
        keys, weights = self.settings.keys, self.layer_weights
        if weights is None and keys is None:
            hidden: Tensor = self.encoder(inputs, **arguments).last_hidden_state
            return hidden
        made = self.encoder(inputs, output_hidden_states=True, **arguments)
        hidden = made.last_hidden_state
        if weights is not None:
            hidden = (torch.stack(made.hidden_states, 1) * weights.softmax(0)[:, None, None]).sum(1)
        return hidden if keys is None else torch.cat([hidden, made.hidden_states[keys]], 2)

    def _masked(self, module: nn.Module, inputs: tuple[Tensor], outputs: Any) -> Any:
        """A hook: in training, frames in random spans become the mask's vector, random dimensions zero."""
        config = self.encoder.config
        if not self.training or not (self.time_mask or config.mask_feature_prob):
            return outputs
        hidden: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
        size, frames, width = hidden.shape
        if self.time_mask:
            lengths = self.speech.lengths("frames", size, frames, hidden.device)
            masked = spans(lengths, frames, self.time_mask, config.mask_time_length, config.mask_time_min_masks)
            vector = getattr(self.encoder, "masked_spec_embed", None)
            hidden = hidden.where(~masked[..., None], 0.0 if vector is None else vector.to(hidden.dtype))
        if config.mask_feature_prob:
            lengths = torch.full((size,), width, device=hidden.device)
            share, span, fewest = config.mask_feature_prob, config.mask_feature_length, config.mask_feature_min_masks
            hidden = hidden.masked_fill(spans(lengths, width, share, span, fewest)[:, None], 0.0)
        return (hidden, *outputs[1:]) if isinstance(outputs, tuple) else hidden

    def _read_no_padding(self) -> None:
        """Make the parts that would read padding read none, and run for several clients at once."""
        for name, module in list(self.encoder.named_modules()):
            owner = self.encoder.get_submodule(name.rpartition(".")[0])
            last = name.rpartition(".")[2]
            if isinstance(module, ParametrizationList) and isinstance(dim := getattr(module[0], "dim", None), int):
                module[0] = WeightNorm(dim)
            if isinstance(module, nn.GroupNorm):
                setattr(owner, last, GroupNorm(module, self.speech, "first"))
            elif isinstance(module, nn.BatchNorm1d):
                setattr(owner, last, BatchNorm(module, self.speech, "frames"))
            elif isinstance(module, nn.Conv1d) and module.padding != (0,):  # else it reads no frame behind its own
                if name.startswith("encoder."):
                    silence_before(module, self.speech, "frames")
                elif found := re.match(r"adapter\.layers\.(\d+)\.", name):
                    silence_before(module, self.speech, f"adapter {found[1]}")


def window_of(settings: EncoderSettings, found: Described) -> int:
    """Frames of Whisper's window with these settings."""
    return found.window if settings.seconds is None else 2 * round(settings.seconds * FRAMES_A_SECOND / 2)


def normalised(samples: Tensor, lengths: Tensor) -> Tensor:
    """Waveforms [B, T] of lengths [B] with mean 0 and variance 1 each, padded with zeros."""
    inside, count = ~padding(lengths, samples.shape[1]), lengths[:, None]
    centred = (samples - samples.where(inside, 0.0).sum(1, keepdim=True) / count).where(inside, 0.0)
    return centred / (centred.square().sum(1, keepdim=True) / count + EPSILON).sqrt()
