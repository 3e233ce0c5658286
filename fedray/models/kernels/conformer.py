"""The encoder of a Conformer, from the parts of this package, with the parameters of SpeechBrain's modules."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
from speechbrain.lobes.models.transformer.Conformer import ConformerEncoderLayer
from speechbrain.lobes.models.transformer.TransformerASR import TransformerASR
from speechbrain.nnet.attention import RelPosEncXL
from torch import Tensor

from fedray.models.kernels.attention import RelativeAttention, RotaryAttention
from fedray.models.kernels.convolution import Convolution, Halving
from fedray.models.kernels.feed_forward import FeedForward
from fedray.models.kernels.rows import Drop, Dropout, Part, drops, norm, norm_back

SLOPE = 0.01  # of torch's LeakyReLU


def front(module: ConvolutionFrontEnd, features: Tensor, lengths: Tensor, share: float) -> Tensor:
    """`module(features)` for a front of two Conv1d, [B, T, bins] -> [B, ceil(T / 4), D], with dropout `share`."""
    x = features.contiguous()
    for block, drop in zip(module.children(), drops(share, 2), strict=True):
        conv, layer_norm = block.convs.conv_0.conv, block.convs.norm_0.norm
        parameters = conv.weight, conv.bias, layer_norm.weight, layer_norm.bias
        x = Halving.apply(x, *parameters, lengths.numpy(), SLOPE, drop)
        lengths = (lengths + 1) // 2
    return x


def encode(transformer: TransformerASR, frames: Tensor, lengths: Tensor, share: float) -> Tensor:
    """`transformer.encode` of frames [B, T, D] with these lengths and dropout `share`; padding has no effect."""
    linear, counts = transformer.custom_src_module.layers[0].w, lengths.numpy()
    first, *rest = drops(share, 1 + 6 * len(transformer.encoder.layers))
    x = Dropout.apply(linear(frames), first)
    for number, layer in enumerate(transformer.encoder.layers):
        x = _layer(layer, x, counts, rest[6 * number : 6 * number + 6])
    last = transformer.encoder.norm.norm
    return LayerNorm.apply(x, last.weight, last.bias, last.eps)


def _layer(layer: ConformerEncoderLayer, x: Tensor, lengths: np.ndarray, drop: list[Drop]) -> Tensor:
    x = _feed_forward(layer.ffn_module1, x, drop[0], drop[1])
    attention, before = layer.mha_layer, layer.norm1.norm
    ends = attention.out_proj.weight, attention.out_proj.bias
    if hasattr(attention, "pos_bias_u"):
        middle = attention.linear_pos.weight, attention.pos_bias_u, attention.pos_bias_v
        positions = _distances(x.shape[1], x.shape[2])
        x = RelativeAttention.apply(x, before.weight, before.bias, attention.in_proj_weight, *middle, *ends, positions,
                                    lengths, attention.num_heads, drop[2])  # fmt: skip
    else:
        x = RotaryAttention.apply(x, before.weight, before.bias, attention.in_proj_weight, *ends, lengths,
                                  attention.num_heads, drop[2])  # fmt: skip
    module = layer.convolution_module
    parts: tuple[Any, ...] = (module.layer_norm, module.bottleneck[0], module.conv, module.after_conv[0],
                              module.after_conv[2])  # fmt: skip
    x = Convolution.apply(x, *(tensor for part in parts for tensor in (part.weight, part.bias)), lengths, drop[3])
    x = _feed_forward(layer.ffn_module2, x, drop[4], drop[5])
    behind = layer.norm2.norm
    return LayerNorm.apply(x, behind.weight, behind.bias, behind.eps)


def _feed_forward(module: Any, x: Tensor, inner: Drop, outer: Drop) -> Tensor:
    parts = module[0], module[1].ffn[0], module[1].ffn[3]
    weights = (tensor for part in parts for tensor in (part.weight, part.bias))
    return FeedForward.apply(x, *weights, inner, outer)


@functools.lru_cache(maxsize=16)  # each holds 2 time - 1 rows: megabytes for long speech
def _distances(time: int, width: int) -> Tensor:
    """SpeechBrain's embeddings of the distances between `time` frames, [2 time - 1, width]."""
    return RelPosEncXL(width)(torch.empty(1, time, width))[0].contiguous()


class LayerNorm(Part):
    """Layer norm over the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        out, means, inverse = norm(x.view(-1, x.shape[-1]), weight, bias, epsilon)
        ctx.save_for_backward(x, weight, means, inverse)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, means, inverse = ctx.saved_tensors
        to_x, rows = torch.zeros_like(x), x.view(-1, x.shape[-1])
        flat = to_x.view(rows.shape)
        to_weight, to_bias = norm_back(gradient.reshape(rows.shape), rows, weight, means, inverse, flat)
        return to_x, to_weight, to_bias, None
