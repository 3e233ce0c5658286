"""SpeechBrain's Conformer with a CTC head and, optionally, a transformer decoder with an attention head.

Every part with weights is a SpeechBrain module, so a saved model loads without fedray (see
`fedray.models.export_recogniser`).

Padding has no effect here. In SpeechBrain it has one: the front reflects the end of the batch, not the end of the
utterance, and the Conformer masks attention and the output of the depthwise convolution, but not the convolution's
input. So an utterance's output depends on the other utterances of its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
from speechbrain.lobes.models.transformer.Conformer import ConvolutionModule
from speechbrain.lobes.models.transformer.TransformerASR import TransformerASR
from speechbrain.nnet.CNN import Conv1d, Conv2d
from speechbrain.nnet.linear import Linear
from speechbrain.nnet.normalization import LayerNorm
from torch import Tensor, nn
from torch.nn.functional import linear

from fedray.core.ranges import Count, Natural, Part, Ranged, one_of
from fedray.models.heads import Heads
from fedray.models.kernels import on_cpu
from fedray.models.padding import Reflect, Silence, padding, shortest_of
from fedray.models.steps import Attention, Layer, Steps, TransformerSteps

FRONTS = {"conv1d": Conv1d, "conv2d": Conv2d}
COMPILED = ("RoPEMHA", "RelPosMHAXL")
SHORTEST = 3  # frames that two reflecting convolutions need
LONGEST = 2500  # positions in SpeechBrain's table of absolute positions: 100 s of speech, or 2500 tokens of the decoder


@dataclass(frozen=True)
class ConformerSettings(Ranged):
    """The sizes of a Conformer. The defaults give a model of 0.22M parameters that trains on a CPU.

    Conformer-S of the FedNST paper has front=conv2d, d_model=144, layers=12, ffn=1024, kernel=31,
    attention=RelPosMHAXL, decoder_layers=4. The decoder's `bos` and `eos` are by default two tokens after the
    vocabulary; in SpeechBrain's recipes they are part of the vocabulary (for its checkpoints bos=1, eos=2).
    """

    # conv1d | conv2d: two layers, each of which halves the frames. conv2d alone costs three times as much as the whole
    # conv1d model.
    front: str = one_of(FRONTS)
    d_model: Count = 64  # width of the encoder and the decoder
    layers: Count = 2  # layers of the encoder
    heads: Count = 4  # attention heads of a layer; they divide d_model
    ffn: Count = 256  # width of the feed-forward parts
    kernel: Count = 15  # width of the depthwise convolutions, in encoder frames
    attention: str = one_of(("RoPEMHA", "RelPosMHAXL", "regularMHA"))  # RoPEMHA | RelPosMHAXL | regularMHA
    dropout: Part = 0.1  # share of the activations that training drops
    decoder_layers: Natural = 0  # layers of the Transformer decoder; 0: CTC only
    bos: Natural | None = None  # token that starts a text; null: the first token after the vocabulary
    eos: Natural | None = None  # token that ends a text; null: the second token after the vocabulary
    init: str | None = None  # a file with initial weights: a state dict of the same model, or of SpeechBrain's recipes

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % (2 * self.heads):
            raise ValueError(f"model.d_model={self.d_model} must be a multiple of 2 x model.heads={self.heads}")
        if self.kernel % 2 == 0:
            raise ValueError(f"model.kernel={self.kernel} must be odd")
        if (self.bos is None) != (self.eos is None):
            raise ValueError(
                "model.bos and model.eos must be set together, or not at all (then they follow the vocabulary)"
            )


class Conformer(Heads):
    """A recogniser: log-mels [frames, bins] in, log-probabilities [frames / 4, vocabulary] out.

    Token 0 is the CTC blank.
    """

    Settings: ClassVar[type] = ConformerSettings
    # The parts of `model` in SpeechBrain's recipes, in order.
    recipe: ClassVar[tuple[str, ...]] = ("front", "transformer", "attention_head", "ctc_head")
    # For example.py: how SpeechBrain's parts encode one utterance.
    example: ClassVar[str] = 'model["transformer"].encode(model["front"](mels[None]))'
    shortest: ClassVar[int] = SHORTEST
    clients_together: ClassVar[str] = "any shapes"
    longest: ClassVar[int] = 4 * LONGEST  # frames of an ONNX model's longest input, where its tables of positions end
    most_tokens: ClassVar[int] = LONGEST - 1  # of a text without its end

    def __init__(self, settings: ConformerSettings, bins: int, vocabulary: int, ctc: int | None = None) -> None:
        """`ctc`: the number of CTC tokens if the decoder has others. 0: no CTC head; None: the vocabulary's."""
        super().__init__()
        if settings.bos is not None and len({settings.bos, settings.eos} & set(range(1, vocabulary))) < 2:
            wrong = f"model.bos={settings.bos} and model.eos={settings.eos}"
            raise ValueError(f"{wrong} must be two different tokens of 1..{vocabulary - 1}")
        self.settings, self.bins, self.vocabulary = settings, bins, vocabulary
        self.ctc_tokens = vocabulary if ctc is None else ctc
        self.bos = vocabulary if settings.bos is None else settings.bos
        self.eos = vocabulary + 1 if settings.eos is None else settings.eos
        arguments = self.parts()
        self.front = ConvolutionFrontEnd(**arguments["front"])
        self.transformer = TransformerASR(**arguments["transformer"])
        self.attention_head = Linear(**arguments["attention_head"]) if settings.decoder_layers else None
        self.ctc_head = Linear(**arguments["ctc_head"]) if self.ctc_tokens else None

    def parts(self) -> dict[str, dict[str, Any]]:
        """The arguments of each SpeechBrain part, by name. The export writes them as HyperPyYAML."""
        return part_arguments(self.settings, self.bins, self.vocabulary, self.ctc_tokens)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """`encode`, then `ctc`: log-probabilities [B, T', V] and their lengths [B]."""
        hidden, lengths = self.encode(features, lengths)
        return self.ctc(hidden), lengths

    @staticmethod
    def output_lengths(settings: ConformerSettings, lengths: Tensor) -> Tensor:
        """Encoder frames [B] of utterances with these numbers [B] of feature frames."""
        return subsampled(lengths)

    @staticmethod
    def limits(settings: ConformerSettings) -> tuple[int | None, int | None]:
        """The most frames of an utterance, and the most tokens of a text with its end; None: no limit."""
        absolute = settings.attention == "regularMHA"
        return 4 * LONGEST if absolute else None, LONGEST if settings.decoder_layers else None

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, T, bins] and lengths [B] in frames -> hidden states and their lengths [B].

        Hidden states are [B, ceil(T / 4), d_model]. ValueError for an utterance that is too short.
        """
        shortest = shortest_of(lengths)
        if shortest < SHORTEST:
            raise ValueError(f"an utterance of {shortest} frames is too short: the conformer needs {SHORTEST}")
        if self.settings.attention in COMPILED and on_cpu(features):
            return self._encode_compiled(features, lengths)
        with self._padding_masked(lengths):
            frames = self.front(features)
            lengths = subsampled(lengths)
            return self.transformer.encode(frames, lengths / frames.shape[1]), lengths

    def _encode_compiled(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        from fedray.models.kernels import conformer as kernels

        share = self.settings.dropout if self.training else 0.0
        if self.settings.front == "conv1d":
            frames = kernels.front(self.front, features, lengths, share)
        else:
            with self._padding_masked(lengths):
                frames = self.front(features)
        lengths = subsampled(lengths)
        return kernels.encode(self.transformer, frames.flatten(2), lengths, share), lengths

    def unpadded(self, features: Tensor) -> Tensor:
        """Features [B, T, bins] of utterances of one length -> log-probabilities [B, ceil(T / 4), vocabulary]."""
        return self.ctc(self.transformer.encode(self.front(features)))

    def decode(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """The inputs of the attention head after each prefix, [B, L, d_model].

        Equals SpeechBrain's `TransformerASR.decode`, which computes no gradients. ValueError without a decoder.
        """
        transformer, positions = self._decoder()
        length = tokens_bos.shape[1]
        targets = transformer.custom_tgt_module(tokens_bos)
        # Padding follows the last token, so the causal mask hides it.
        causal = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)
        decoded: Tensor
        decoded, _, _ = transformer.decoder(
            targets + positions(targets),
            hidden,
            tgt_mask=causal,
            memory_key_padding_mask=padding(lengths, hidden.shape[1]),
        )
        return decoded

    def steps(self, hidden: Tensor, lengths: Tensor, beam: int) -> Steps:
        """The decoder for a search with `beam` hypotheses for each utterance. ValueError without a decoder."""
        transformer, positions = self._decoder()
        layers = [decoder_layer(layer) for layer in transformer.decoder.layers]

        def embed(tokens: Tensor, position: int) -> Tensor:
            states: Tensor = transformer.custom_tgt_module(tokens) + positions.pe[0, position]
            return states

        return TransformerSteps(layers, embed, transformer.decoder.norm, hidden, lengths, beam)

    def _decoder(self) -> tuple[Any, Any]:
        """The transformer and the module of the decoder's positions. ValueError without a decoder."""
        if self.attention_head is None:
            raise ValueError("this conformer has no decoder: set model.decoder_layers")
        transformer = self.transformer
        absolute = self.settings.attention == "regularMHA"
        return transformer, transformer.positional_encoding if absolute else transformer.positional_encoding_decoder

    @contextmanager
    def _padding_masked(self, lengths: Tensor) -> Iterator[None]:
        """While open, convolutions see no padding: the front sees reflected ends of utterances, the encoder zeros."""
        with ExitStack() as hooks:
            for module in self.front.modules():
                if isinstance(module, (Conv1d, Conv2d)):
                    hooks.callback(module.register_forward_pre_hook(Reflect(lengths)).remove)
                    lengths = halved(lengths)
            for module in self.transformer.encoder.modules():
                if isinstance(module, ConvolutionModule):
                    hooks.callback(module.conv.register_forward_pre_hook(Silence(lengths)).remove)
            yield


def decoder_layer(layer: Any) -> Layer:
    """A SpeechBrain `TransformerDecoderLayer` for one token at a time."""
    norms = (layer.norm1, layer.norm2, layer.norm3)
    return Layer(norms, attention_of(layer.self_attn.att), attention_of(layer.multihead_attn.att), layer.pos_ffn)


def attention_of(module: nn.MultiheadAttention) -> Attention:
    """The projections of torch's attention, which hold queries, keys and values in one weight."""
    assert module.in_proj_bias is not None
    parts = zip(module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3), strict=True)
    queries, keys, values = (partial(linear, weight=weight, bias=bias) for weight, bias in parts)
    return Attention(queries, keys, values, module.out_proj, module.num_heads)


def halved(lengths: Tensor) -> Tensor:
    """Frames left after a convolution of stride 2."""
    return (lengths + 1) // 2


def subsampled(lengths: Tensor) -> Tensor:
    """Encoder frames of utterances with these numbers of feature frames."""
    return halved(halved(lengths))


def part_arguments(settings: ConformerSettings, bins: int, vocabulary: int, ctc: int) -> dict[str, dict[str, Any]]:
    """The arguments of each SpeechBrain part, by name. `ctc`: the number of CTC tokens."""
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
            # The table of positions is a buffer in the state dict: it has one entry if no layer reads it.
            "max_length": LONGEST if absolute or settings.decoder_layers else 1,
        },
        "attention_head": {"input_size": settings.d_model, "n_neurons": attention_size},
        "ctc_head": {"input_size": settings.d_model, "n_neurons": ctc},
    }
