"""Recurrent layers and batch norm on padded batches, in operations that `torch.func.vmap` runs for many models.

`vmap` cannot run packed sequences, whose sizes depend on the lengths.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, dropout, linear


def recurrent(module: nn.GRU | nn.LSTM, inputs: Tensor, lengths: Tensor) -> Tensor:
    """`module(inputs)[0]` of [B, T, features] with these lengths -> [B, T, directions x hidden].

    The module has biases, no projections, and the batch as its first dimension. Outputs of padding frames mean nothing.
    """
    directions = 1 + module.bidirectional
    step = _gru if isinstance(module, nn.GRU) else _lstm
    x = inputs
    for layer in range(module.num_layers):
        weights = module.all_weights[layer * directions : (layer + 1) * directions]
        x = torch.cat(
            [step(x, *weights[0]), *(turned(step(turned(x, lengths), *each), lengths) for each in weights[1:])], 2
        )
        if layer + 1 < module.num_layers:
            x = dropout(x, module.dropout, module.training)
    return x


def turned(frames: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each utterance of [B, T, D] within its own length; padding stays behind it."""
    at = torch.arange(frames.shape[1], device=frames.device)
    order = torch.where(at < lengths[:, None], lengths[:, None] - 1 - at, at)
    return frames.gather(1, order[..., None].expand(frames.shape))


def _gru(frames: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    """The states of a GRU that reads [B, T, D] from the first frame on."""
    sums, state, states = linear(frames, w_ih, b_ih), frames.new_zeros(len(frames), w_hh.shape[1]), []
    for frame in sums.unbind(1):
        r_x, z_x, n_x = frame.chunk(3, 1)
        r_h, z_h, n_h = linear(state, w_hh, b_hh).chunk(3, 1)
        z = torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
        state = n + z * (state - n)
        states.append(state)
    return torch.stack(states, 1)


def _lstm(frames: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    """The states of an LSTM that reads [B, T, D] from the first frame on."""
    sums, states = linear(frames, w_ih, b_ih + b_hh), []
    state = cell = frames.new_zeros(len(frames), w_hh.shape[1])
    for frame in sums.unbind(1):
        i, f, g, o = (frame + linear(state, w_hh)).chunk(4, 1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        state = torch.sigmoid(o) * torch.tanh(cell)
        states.append(state)
    return torch.stack(states, 1)


def norm_of_speech(norm: nn.BatchNorm1d, frames: Tensor, speech: Tensor) -> Tensor:
    """Batch norm of [B, T, D] whose statistics are those of the frames where `speech` [B, T] is true."""
    if not norm.training and norm.running_mean is not None:  # in evaluation, frozen or not
        return batch_norm(
            frames.transpose(1, 2), norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        ).transpose(1, 2)
    counted, count = speech[..., None], speech.sum()
    mean = frames.where(counted, 0.0).sum((0, 1)) / count
    centred = frames - mean
    variance = centred.where(counted, 0.0).square().sum((0, 1)) / count
    if norm.track_running_stats:
        assert norm.running_mean is not None and norm.running_var is not None and norm.momentum is not None
        with torch.no_grad():
            unbiased = variance * (count / (count - 1).clamp(min=1))
            for kept, found in ((norm.running_mean, mean), (norm.running_var, unbiased)):
                kept.mul_(1 - norm.momentum).add_(found * norm.momentum)
    return centred * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias
