"""Loops over rows of activations [rows, width], and the dropout that they share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from fedray.models.kernels.scalars import OPTIONS, F, keeps, moments, sigmoid


class Part(torch.autograd.Function):
    """A part of a model that computes its own gradients: call `Part.apply(*inputs)`."""

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; `ctx` keeps what `backward` needs."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        """The gradients of the inputs from those of the outputs; None for inputs that have none."""
        raise NotImplementedError


class Drop(NamedTuple):
    """A dropout: its mask follows from the seed."""

    seed: np.uint32
    threshold: np.uint32  # hashes below it drop an activation
    scale: np.float32  # factor of kept activations

    def times(self, factor: float) -> Drop:
        """The dropout followed by multiplication by a factor."""
        return self._replace(scale=np.float32(self.scale * factor))


def drops(share: float, count: int) -> list[Drop]:
    """`count` dropouts of a share of the activations, seeded by torch's global generator; share 0: none is dropped."""
    if not share:
        return [Drop(np.uint32(0), np.uint32(0), np.float32(1))] * count
    threshold, scale = np.uint32(share * 2**32), np.float32(1 / (1 - share))
    return [Drop(np.uint32(seed), threshold, scale) for seed in torch.randint(0, 2**32, (count,)).tolist()]


def arrays(*tensors: Tensor) -> list[np.ndarray]:
    """The memory of contiguous tensors on the CPU."""
    return [(tensor.detach() if tensor.requires_grad else tensor).numpy() for tensor in tensors]


class Dropout(Part):
    """Dropout whose mask is computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, drop: Drop) -> Tensor:
        ctx.drop, out = drop, torch.empty_like(x)
        dropout(*arrays(x, out), *drop)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        g = gradient.contiguous()
        out = torch.empty_like(g)
        dropout(*arrays(g, out), *ctx.drop)
        return out, None


def norm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm of rows [N, D], and their means and inverse standard deviations, both [N]."""
    out, means, inverse = torch.empty_like(x), x.new_empty(len(x)), x.new_empty(len(x))
    layer_norm(*arrays(x, weight, bias), np.float32(epsilon), *arrays(out, means, inverse))
    return out, means, inverse


def norm_back(
    gradient: Tensor, x: Tensor, weight: Tensor, means: Tensor, inverse: Tensor, to_x: Tensor
) -> tuple[Tensor, Tensor]:
    """Adds to the gradient of x; returns those of weight and bias."""
    to_weight, to_bias = torch.zeros_like(weight), torch.zeros_like(weight)
    layer_norm_back(*arrays(gradient, x, weight, means, inverse, to_x, to_weight, to_bias))
    return to_weight, to_bias


@njit(**OPTIONS)
def layer_norm(x, weight, bias, epsilon, out, means, inverse):
    """Layer norm of each row; `means` and `inverse` standard deviations are kept for the backward pass."""
    rows, width = x.shape
    for row in range(rows):
        mean, r = moments(x[row], epsilon)
        for column in range(width):
            out[row, column] = (x[row, column] - mean) * r * weight[column] + bias[column]
        means[row] = mean
        inverse[row] = r


@njit(**OPTIONS)
def layer_norm_back(gradient, x, weight, means, inverse, to_x, to_weight, to_bias):
    """Adds the gradients of the three inputs of `layer_norm` to `to_x`, `to_weight` and `to_bias`."""
    rows, width = x.shape
    for row in range(rows):
        mean, r = means[row], inverse[row]
        first = F(0)
        second = F(0)
        for column in range(width):
            g = gradient[row, column] * weight[column]
            first += g
            second += g * (x[row, column] - mean)
        first = first / F(width)
        second = second * r * r / F(width)
        for column in range(width):
            d = x[row, column] - mean
            g = gradient[row, column]
            to_weight[column] += g * d * r
            to_bias[column] += g
            to_x[row, column] += (g * weight[column] - first - d * second) * r


@njit(**OPTIONS)
def silu_dropout(x, out, seed, threshold, scale):
    """Dropout of x sigmoid(x)."""
    flat, to = x.reshape(-1), out.reshape(-1)
    for place in range(flat.size):
        value = flat[place]
        to[place] = value * sigmoid(value) * (scale if keeps(place, seed, threshold) else F(0))


@njit(**OPTIONS)
def silu_dropout_back(gradient, x, seed, threshold, scale):
    """Turns the gradient of `silu_dropout`'s output into that of its input, in place."""
    flat, g = x.reshape(-1), gradient.reshape(-1)
    for place in range(flat.size):
        value = flat[place]
        s = sigmoid(value)
        kept = scale if keeps(place, seed, threshold) else F(0)
        g[place] = g[place] * kept * s * (F(1) + value * (F(1) - s))


@njit(**OPTIONS)
def add_dropout(x, change, seed, threshold, scale):
    """Adds dropout of `change` to x, in place of `change`; `scale` may contain a further factor."""
    flat, to = x.reshape(-1), change.reshape(-1)
    for place in range(flat.size):
        to[place] = flat[place] + to[place] * (scale if keeps(place, seed, threshold) else F(0))


@njit(**OPTIONS)
def dropout(x, out, seed, threshold, scale):
    """Dropout: kept activations times `scale`. It is its own backward pass."""
    flat, to = x.reshape(-1), out.reshape(-1)
    for place in range(flat.size):
        to[place] = flat[place] * (scale if keeps(place, seed, threshold) else F(0))
