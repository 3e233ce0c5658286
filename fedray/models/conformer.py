"""SpeechBrain's Conformer with a CTC head and, if wanted, a transformer decoder with its attention head.

Every part that holds weights is a SpeechBrain module, so a saved model loads without fedray (see `fedray.models.export`).
What this file adds is that padding does not count: SpeechBrain's convolutions read the padding of a batch (its front reflects the
end of the batch instead of the end of the utterance, its Conformer masks attention and the output of the depthwise convolution, but not
the input), so there an utterance's output depends on whom it is batched with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
from speechbrain.lobes.models.transformer.Conformer import ConvolutionModule
from speechbrain.lobes.models.transformer.TransformerASR import TransformerASR
from speechbrain.nnet.CNN import Conv1d, Conv2d
from speechbrain.nnet.linear import Linear
from speechbrain.nnet.normalization import LayerNorm
from torch import Tensor, nn

from fedray.models.padding import Reflect, Silence, padding

FRONTS = {"conv1d": Conv1d, "conv2d": Conv2d}
ATTENTIONS = ("RoPEMHA", "RelPosMHAXL", "regularMHA")
SHORTEST = 3  # frames: two reflecting convolutions need them
LONGEST = 2500  # positions in SpeechBrain's tables of absolute positions: 100 s of speech, or tokens of the decoder


@dataclass(frozen=True)
class ConformerSettings:
    """The defaults are a model of 0.22M parameters that learns on a CPU; Conformer-S of the FedNST paper is
    front=conv2d, d_model=144, layers=12, ffn=1024, kernel=31, attention=RelPosMHAXL, decoder_layers=4, bos=1, eos=2.

    `bos` and `eos` of the decoder are by default two further tokens after the vocabulary; SpeechBrain's recipes have them inside it.
    """

    front: str = "conv1d"  # conv1d | conv2d: two layers, each halves the frames; conv2d costs three times the whole conv1d model
    d_model: int = 64
    layers: int = 2
    heads: int = 4
    ffn: int = 256
    kernel: int = 15  # of the depthwise convolutions, in encoder frames
    attention: str = "RoPEMHA"  # RoPEMHA | RelPosMHAXL | regularMHA
    dropout: float = 0.1
    decoder_layers: int = 0
    bos: int | None = None
    eos: int | None = None
    init: str | None = None  # a file of weights to start from: a state dict of the same model, or of SpeechBrain's recipes

    def __post_init__(self) -> None:
        if self.front not in FRONTS:
            raise ValueError(f"model.front={self.front!r} is unknown: choose one of {', '.join(FRONTS)}")
        if self.attention not in ATTENTIONS:
            raise ValueError(f"model.attention={self.attention!r} is unknown: choose one of {', '.join(ATTENTIONS)}")
        if self.d_model % (2 * self.heads):
            raise ValueError(f"model.d_model={self.d_model} must be a multiple of 2 x model.heads={self.heads}")
        if self.kernel % 2 == 0:
            raise ValueError(f"model.kernel={self.kernel} must be odd")
        if (self.bos is None) != (self.eos is None):
            raise ValueError("model.bos and model.eos must be given together, or neither (then they follow the vocabulary)")


class Conformer(nn.Module):
    """`bins` log-mels a frame in, log-probabilities of `vocabulary` tokens (0 is the CTC blank) four times slower out."""

    Settings: ClassVar[type] = ConformerSettings
    recipe: ClassVar[tuple[str, ...]] = ("front", "transformer", "attention_head", "ctc_head")  # `model` of SpeechBrain's recipes
    example: ClassVar[str] = 'model["transformer"].encode(model["front"](mels[None]))'  # one utterance, in its parts alone

    def __init__(self, settings: ConformerSettings, bins: int, vocabulary: int) -> None:
        super().__init__()
        if settings.bos is not None and not {settings.bos, settings.eos} < set(range(1, vocabulary)):
            raise ValueError(f"model.bos={settings.bos} and model.eos={settings.eos} must be two different tokens of 1..{vocabulary - 1}")
        self.settings, self.bins, self.vocabulary = settings, bins, vocabulary
        self.bos = vocabulary if settings.bos is None else settings.bos
        self.eos = vocabulary + 1 if settings.eos is None else settings.eos
        arguments = self.parts()
        self.front = ConvolutionFrontEnd(**arguments["front"])
        self.transformer = TransformerASR(**arguments["transformer"])
        self.attention_head = Linear(**arguments["attention_head"]) if settings.decoder_layers else None
        self.ctc_head = Linear(**arguments["ctc_head"])

    def parts(self) -> dict[str, dict[str, Any]]:
        """What each SpeechBrain part is built with; the export writes the same as HyperPyYAML."""
        return part_arguments(self.settings, self.bins, self.vocabulary)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """`encode` and `ctc`: log-probabilities [B, T', V] and their lengths [B]."""
        hidden, lengths = self.encode(features, lengths)
        return self.ctc(hidden), lengths

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, T, bins] and lengths [B] in frames -> hidden states [B, ceil(T / 4), d_model] and their lengths."""
        if int(lengths.min()) < SHORTEST:
            raise ValueError(f"an utterance of {int(lengths.min())} frames is too short: the conformer needs {SHORTEST}")
        with self._padding_masked(lengths):
            frames = self.front(features)
            lengths = subsampled(lengths)
            return self.transformer.encode(frames, lengths / frames.shape[1]), lengths

    def ctc(self, hidden: Tensor) -> Tensor:
        return self.ctc_head(hidden).log_softmax(-1)

    def attend(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """Log-probabilities [B, L, V + 2] of the token after each prefix of tokens_bos [B, L] (starts with `bos`, padded with any)."""
        log_probs: Tensor = self.attention_head(self.decode(hidden, lengths, tokens_bos)).log_softmax(-1)
        return log_probs

    def decode(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """What the attention head reads after each prefix, [B, L, d_model].

        The same as SpeechBrain's `TransformerASR.decode`, which is without gradients.
        """
        if self.attention_head is None:
            raise ValueError("this conformer has no decoder: set model.decoder_layers")
        transformer = self.transformer
        length = tokens_bos.shape[1]
        position = transformer.positional_encoding if self.settings.attention == "regularMHA" else transformer.positional_encoding_decoder
        targets = transformer.custom_tgt_module(tokens_bos)
        # Padding follows the last token, so the causal mask hides it already.
        causal = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)
        decoded: Tensor
        decoded, _, _ = transformer.decoder(
            targets + position(targets), hidden, tgt_mask=causal, memory_key_padding_mask=padding(lengths, hidden.shape[1])
        )
        return decoded

    @contextmanager
    def _padding_masked(self, lengths: Tensor) -> Iterator[None]:
        """While open, no convolution sees anything but its own utterance: the front sees its end reflected, the encoder sees zeros."""
        with ExitStack() as hooks:
            for module in self.front.modules():
                if isinstance(module, (Conv1d, Conv2d)):
                    hooks.callback(module.register_forward_pre_hook(Reflect(lengths)).remove)
                    lengths = halved(lengths)
            for module in self.transformer.encoder.modules():
                if isinstance(module, ConvolutionModule):
                    hooks.callback(module.conv.register_forward_pre_hook(Silence(lengths)).remove)
            yield


def halved(lengths: Tensor) -> Tensor:
    return (lengths + 1) // 2


def subsampled(lengths: Tensor) -> Tensor:
    """Encoder frames of utterances of so many feature frames."""
    return halved(halved(lengths))


def part_arguments(settings: ConformerSettings, bins: int, vocabulary: int) -> dict[str, dict[str, Any]]:
    conv1d = settings.front == "conv1d"
    channels = (settings.d_model, settings.d_model) if conv1d else (64, 32)
    bins_left = 1 if conv1d else -(-bins // 4)
    attention_size = vocabulary + 2 if settings.bos is None else vocabulary
    absolute = settings.attention == "regularMHA"
    return {
        "front": {
            "input_shape": (8, 10, bins),
            "num_blocks": 2,
            "num_layers_per_block": 1,
            "out_channels": channels,
            "kernel_sizes": (3, 3),
            "strides": (2, 2),
            "residuals": (False, False),
            "conv_module": FRONTS[settings.front],
            "norm": LayerNorm,
            "dropout": settings.dropout,
        },
        "transformer": {
            "input_size": channels[-1] * bins_left,
            "tgt_vocab": attention_size,
            "d_model": settings.d_model,
            "nhead": settings.heads,
            "num_encoder_layers": settings.layers,
            "num_decoder_layers": settings.decoder_layers,
            "d_ffn": settings.ffn,
            "dropout": settings.dropout,
            "activation": nn.GELU,
            "encoder_module": "conformer",
            "attention_type": settings.attention,
            "positional_encoding": "fixed_abs_sine" if absolute else None,
            "kernel_size": settings.kernel,
            "normalize_before": True,
            "causal": False,
            # The table is a buffer of the state dict: none where nobody reads it.
            "max_length": LONGEST if absolute or settings.decoder_layers else 1,
        },
        "attention_head": {"input_size": settings.d_model, "n_neurons": attention_size},
        "ctc_head": {"input_size": settings.d_model, "n_neurons": vocabulary},
    }
