"""A GRU and an LSTM of one or more layers, in one direction or two, for utterances of different lengths.

Utterances are not packed. For the second direction, each is reversed within its own length, so padding comes last in
both directions, and nothing depends on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedray.models.kernels.matrices import multiply
from fedray.models.kernels.recurrent_loops import gru, gru_back, lstm, lstm_back, turned, turned_back
from fedray.models.kernels.rows import Dropout, Part, arrays, drops


def recurrent(module: nn.GRU | nn.LSTM, inputs: Tensor, lengths: Tensor) -> Tensor:
    """`module(inputs)[0]` of [B, T, features] with these lengths -> [B, T, directions x hidden].

    ValueError for a module without biases, with projections, or with time as the first dimension. Outputs of padding
    frames mean nothing.
    """
    if not module.batch_first or not module.bias or module.proj_size:
        raise ValueError(
            "recurrent() takes a nn.GRU or nn.LSTM with biases and batch_first=True: call the module itself"
        )
    kind, counts = (_GRU if isinstance(module, nn.GRU) else _LSTM), lengths.numpy()
    directions = 1 + module.bidirectional
    between = drops(module.dropout if module.training else 0.0, module.num_layers - 1)
    x = inputs.contiguous()
    for layer in range(module.num_layers):
        weights = module.all_weights[layer * directions : (layer + 1) * directions]
        x = kind.apply(x, counts, *(weight for direction in weights for weight in direction))
        if layer + 1 < module.num_layers:
            x = Dropout.apply(x, between[layer])
    return x


class _Recurrent(Part):
    """One layer. A subclass computes one direction, forward and backward, with time first."""

    @classmethod
    def bias(cls, b_ih: Tensor, b_hh: Tensor) -> Tensor:
        """The part of both biases that is added to the input's part of the sums, [gates H]."""
        raise NotImplementedError

    @classmethod
    def run(cls, sums: Tensor, w_hh: Tensor, b_hh: Tensor) -> tuple[Tensor, ...]:
        """From the input's part of the gates' sums [T, B, gates H]: states [T + 1, B, H], and what `run_back` needs."""
        raise NotImplementedError

    @classmethod
    def run_back(cls, gradient: Tensor, w_hh: Tensor, states: Tensor, *kept: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the input's part and of the state's part of the sums, both [T, B, gates H]."""
        raise NotImplementedError

    @classmethod
    def forward(cls, ctx: Any, inputs: Tensor, lengths: np.ndarray, *weights: Tensor) -> Tensor:
        batch, time, features = inputs.shape
        size = weights[1].shape[1]
        out, saved = inputs.new_empty(batch, time, len(weights) // 4 * size), []
        for direction in range(len(weights) // 4):
            w_ih, w_hh, b_ih, b_hh = weights[4 * direction : 4 * direction + 4]
            frames = inputs.new_empty(time, batch, features)
            turned(*arrays(inputs), lengths, direction == 1, *arrays(frames))
            sums = multiply(frames.view(time * batch, features), w_ih.t(), cls.bias(b_ih, b_hh))
            states, *kept = cls.run(sums.view(time, batch, -1), w_hh, b_hh)
            turned_back(*arrays(states[1:]), lengths, direction == 1, *arrays(out), direction * size)
            saved += [frames, w_ih, w_hh, states, *kept]
        ctx.save_for_backward(*saved)
        ctx.rest = lengths, len(weights) // 4
        return out

    @classmethod
    def backward(cls, ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        lengths, directions = ctx.rest
        each = len(ctx.saved_tensors) // directions
        batch, time, _ = gradient.shape
        to_inputs, found = None, []
        for direction in range(directions):
            frames, w_ih, w_hh, states, *kept = ctx.saved_tensors[direction * each : (direction + 1) * each]
            size = states.shape[2]
            part = gradient[..., direction * size : (direction + 1) * size].contiguous()
            to_states = part.new_empty(time, batch, size)
            turned(*arrays(part), lengths, direction == 1, *arrays(to_states))
            to_sums, to_products = cls.run_back(to_states, w_hh, states, *kept)
            by_input, by_state = to_sums.view(time * batch, -1), to_products.view(time * batch, -1)
            to_w_ih = multiply(by_input.t(), frames.view(time * batch, -1))
            to_w_hh = multiply(by_state.t(), states[:-1].reshape(-1, size))
            found += [to_w_ih, to_w_hh, by_input.sum(0), by_state.sum(0)]
            if ctx.needs_input_grad[0]:
                to_frames = multiply(by_input, w_ih).view(frames.shape)
                ordered = to_frames.new_empty(batch, time, frames.shape[2])
                turned_back(*arrays(to_frames), lengths, direction == 1, *arrays(ordered), 0)
                to_inputs = ordered if to_inputs is None else to_inputs.add_(ordered)
        return to_inputs, None, *found


class _GRU(_Recurrent):
    @classmethod
    def bias(cls, b_ih: Tensor, b_hh: Tensor) -> Tensor:
        """Both biases without b_hn, which r multiplies."""
        return torch.cat([(b_ih + b_hh)[: len(b_ih) * 2 // 3], b_ih[len(b_ih) * 2 // 3 :]])

    @classmethod
    def run(cls, sums: Tensor, w_hh: Tensor, b_hh: Tensor) -> tuple[Tensor, ...]:
        time, batch, width = sums.shape
        states, hidden = sums.new_zeros(time + 1, batch, width // 3), sums.new_empty(time, batch, width // 3)
        gru(*arrays(sums, w_hh, b_hh[width * 2 // 3 :], states, hidden))
        return states, sums, hidden

    @classmethod
    def run_back(cls, gradient: Tensor, w_hh: Tensor, states: Tensor, *kept: Tensor) -> tuple[Tensor, Tensor]:
        gates, hidden = kept
        to_sums, to_products = torch.empty_like(gates), torch.empty_like(gates)
        gru_back(*arrays(gradient, gates, w_hh, states, hidden, to_sums, to_products))
        return to_sums, to_products


class _LSTM(_Recurrent):
    @classmethod
    def bias(cls, b_ih: Tensor, b_hh: Tensor) -> Tensor:
        return b_ih + b_hh

    @classmethod
    def run(cls, sums: Tensor, w_hh: Tensor, b_hh: Tensor) -> tuple[Tensor, ...]:
        time, batch, width = sums.shape
        states, cells = sums.new_zeros(2, time + 1, batch, width // 4).unbind()
        lstm(*arrays(sums, w_hh, states, cells))
        return states, sums, cells

    @classmethod
    def run_back(cls, gradient: Tensor, w_hh: Tensor, states: Tensor, *kept: Tensor) -> tuple[Tensor, Tensor]:
        gates, cells = kept
        to_sums = torch.empty_like(gates)
        lstm_back(*arrays(gradient, gates, w_hh, cells, to_sums))
        return to_sums, to_sums
