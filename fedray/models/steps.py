"""Decoders that take one token at a time, as a search needs them.

A decoder with self-attention keeps the keys and values of earlier tokens (its cache), so a step does not decode the
whole prefix again. The keys and values of encoder states are computed once for each utterance; the hypotheses of a beam
share them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fedray.models.padding import padding

Map = Callable[[Tensor], Tensor]
FIRST_ROOM = 32  # tokens that a cache has room for at first; it doubles when it is full


class Steps(ABC):
    """A decoder at work on a batch of B utterances with `beam` hypotheses each, which are B x beam rows."""

    @abstractmethod
    def __call__(self, tokens: Tensor) -> Tensor:
        """Append a token to each hypothesis, [rows]; returns the inputs of the attention head, [rows, D]."""

    @abstractmethod
    def follow(self, rows: Tensor) -> None:
        """Replace each hypothesis by that of the row given for it, [rows], which is one of the same utterance."""

    @abstractmethod
    def keep(self, utterances: Sequence[int]) -> None:
        """Continue with these utterances, in this order. Each takes its own or an earlier place."""


class WholePrefixes(Steps):
    """A decoder without a cache: it decodes the whole prefix at each step.

    For models from outside fedray, and what tests compare other decoders with.
    """

    def __init__(self, decode: Callable[[Tensor, Tensor, Tensor], Tensor], hidden: Tensor, lengths: Tensor, beam: int):
        """`decode`: (hidden states [rows, T, D], lengths [rows], tokens [rows, L]) -> states [rows, L, D]."""
        self._decode, self._beam = decode, beam
        self._hidden, self._lengths = hidden.repeat_interleave(beam, 0), lengths.repeat_interleave(beam)
        self._prefixes = torch.empty(len(self._hidden), 0, dtype=torch.long, device=hidden.device)

    def __call__(self, tokens: Tensor) -> Tensor:
        self._prefixes = torch.cat([self._prefixes, tokens[:, None]], 1)
        return self._decode(self._hidden, self._lengths, self._prefixes)[:, -1]

    def follow(self, rows: Tensor) -> None:
        self._prefixes = self._prefixes[rows]

    def keep(self, utterances: Sequence[int]) -> None:
        rows = rows_of(utterances, self._beam, self._hidden.device)
        self._hidden, self._lengths, self._prefixes = self._hidden[rows], self._lengths[rows], self._prefixes[rows]


@dataclass(frozen=True)
class Attention:
    """The projections of multi-head attention."""

    queries: Map
    keys: Map
    values: Map
    output: Map
    heads: int

    def split(self, states: Tensor) -> Tensor:
        """States [B, L, D] -> [B, heads, L, D / heads]."""
        return states.view(*states.shape[:2], self.heads, -1).transpose(1, 2)

    def keys_and_values(self, states: Tensor) -> Tensor:
        """States [B, L, D] -> [2, B, heads, L, D / heads]."""
        return torch.stack([self.split(self.keys(states)), self.split(self.values(states))])

    def __call__(self, states: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend from states [B, L, D] to keys and values [B, heads, S, D / heads]; returns [B, L, D]."""
        found = scaled_dot_product_attention(self.split(self.queries(states)), keys, values, mask)
        return self.output(found.transpose(1, 2).flatten(2))


@dataclass(frozen=True)
class Layer:
    """A layer of a Transformer decoder that normalises the input of each part."""

    norms: tuple[Map, Map, Map]
    own: Attention  # to earlier tokens
    encoder: Attention  # to encoder states
    feed_forward: Map


class TransformerSteps(Steps):
    """A Transformer decoder with a cache."""

    def __init__(
        self,
        layers: Sequence[Layer],
        embed: Callable[[Tensor, int], Tensor],
        norm: Map,
        hidden: Tensor,
        lengths: Tensor | None,
        beam: int,
    ) -> None:
        """`embed`: (tokens [rows], their position) -> states [rows, D]. `norm`: after the last layer.

        `hidden`: encoder states [B, T, D]; with `lengths` [B], padding after them is not attended to.
        """
        self._layers, self._embed, self._norm, self._beam = layers, embed, norm, beam
        self._mask = None if lengths is None else ~padding(lengths, hidden.shape[1])[:, None, None]
        # Of each layer, keys and values: of encoder states [2, B, heads, T, D / heads], and of tokens
        # [2, rows, heads, room, D / heads].
        self._encoded = [layer.encoder.keys_and_values(hidden) for layer in layers]
        self._said: list[Tensor] = []
        self._length = 0  # tokens in the cache

    def __call__(self, tokens: Tensor) -> Tensor:
        states = self._embed(tokens, self._length)[:, None]
        if not self._said:
            self._said = [self._room_for(layer, states) for layer in self._layers]
        elif self._length == self._said[0].shape[3]:
            self._said = [torch.cat([said, torch.empty_like(said)], 3) for said in self._said]
        self._length += 1
        for layer, encoded, said in zip(self._layers, self._encoded, self._said, strict=True):
            normed = layer.norms[0](states)
            said[:, :, :, self._length - 1 : self._length] = layer.own.keys_and_values(normed)
            keys, values = said[:, :, :, : self._length]
            states = states + layer.own(normed, keys, values)
            together = layer.norms[1](states).view(-1, self._beam, states.shape[2])
            states = states + layer.encoder(together, encoded[0], encoded[1], self._mask).view_as(states)
            states = states + layer.feed_forward(layer.norms[2](states))
        return self._norm(states[:, 0])

    @staticmethod
    def _room_for(layer: Layer, states: Tensor) -> Tensor:
        rows, _, width = states.shape
        return states.new_empty(2, rows, layer.own.heads, FIRST_ROOM, width // layer.own.heads)

    def follow(self, rows: Tensor) -> None:
        for said in self._said:
            filled = said[:, :, :, : self._length]
            filled.copy_(filled[:, rows])

    def keep(self, utterances: Sequence[int]) -> None:
        rows = rows_of(utterances, self._beam, self._encoded[0].device)
        self._said = [said[:, rows] for said in self._said]
        for place, utterance in enumerate(utterances):  # encoder states are large: only those that move are copied
            if place != utterance:
                for encoded in self._encoded:
                    encoded[:, place] = encoded[:, utterance]
        self._encoded = [encoded[:, : len(utterances)] for encoded in self._encoded]
        if self._mask is not None:
            self._mask = self._mask[list(utterances)]


class RecurrentSteps(Steps):
    """SpeechBrain's recurrent decoder with location-aware attention."""

    def __init__(self, embedding: Map, decoder: Any, hidden: Tensor, lengths: Tensor, beam: int) -> None:
        """`decoder`: an `AttentionalRNNDecoder`."""
        self._embedding, self._decoder, self._beam = embedding, decoder, beam
        self._hidden, self._lengths = hidden.repeat_interleave(beam, 0), lengths.repeat_interleave(beam)
        self._state: Tensor | None = None  # [layers, rows, neurons]
        self._context = hidden.new_zeros(len(self._hidden), decoder.attn_dim)
        decoder.attn.reset()

    def __call__(self, tokens: Tensor) -> Tensor:
        states: Tensor
        states, self._state, self._context, _ = self._decoder.forward_step(
            self._embedding(tokens), self._state, self._context, self._hidden, self._lengths
        )
        return states

    def follow(self, rows: Tensor) -> None:
        attention = self._decoder.attn
        assert self._state is not None
        self._state, self._context = self._state[:, rows], self._context[rows]
        attention.prev_attn = attention.prev_attn[rows]

    def keep(self, utterances: Sequence[int]) -> None:
        rows, attention = rows_of(utterances, self._beam, self._hidden.device), self._decoder.attn
        self.follow(rows)
        self._hidden, self._lengths = self._hidden[rows], self._lengths[rows]
        attention.precomputed_enc_h, attention.mask = attention.precomputed_enc_h[rows], attention.mask[rows]


def rows_of(utterances: Sequence[int], beam: int, device: torch.device) -> Tensor:
    """The rows of all hypotheses of these utterances."""
    first = torch.tensor(utterances, device=device)[:, None] * beam
    return (first + torch.arange(beam, device=device)).flatten()
