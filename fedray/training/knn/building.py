"""Building a client's memory: (hidden state, token) pairs of the client's utterances under one model.

`memory.keys: frames` stores encoder frames with CTC's aligned labels; `states` stores teacher-forced decoder states
with the token that follows, as in Du et al. (ICASSP 2024).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torchaudio.functional import forced_align

from fedray.core.types import Vector
from fedray.data.features.dataset import Utterances
from fedray.models.memory import Memory, MemorySettings
from fedray.training.decoding.search import BLANK
from fedray.training.recognisers import frame_keys, teacher_forced
from fedray.training.speech_to_text import SpeechToText

# For each utterance: keys, tokens, and which of the pairs to keep. None: the utterance is left out.
Pairs = Iterator[tuple[Tensor, Tensor, Tensor] | None]


@dataclass(frozen=True)
class Built:
    """A client's memory, and counts of what it leaves out."""

    memory: Memory
    left_out: int  # utterances that CTC cannot align: they have more tokens than frames
    pruned: int  # pairs left out because the model is sure of them


def build_memory(task: SpeechToText, params: Vector, data: Utterances, settings: MemorySettings, device: str) -> Built:
    """Build a memory from a client's utterances."""
    keys, tokens = [np.zeros((0, 1), np.float32)], [np.zeros(0, np.int64)]
    left_out = pruned = 0
    pairs = frame_pairs if settings.keys == "frames" else state_pairs
    for pair in pairs(task, params, data, settings.prune_above, device):
        if pair is None:
            left_out += 1
            continue
        states, labels, kept = pair
        keys.append(states[kept].cpu().numpy())
        tokens.append(labels[kept].cpu().numpy().astype(np.int64))
        pruned += len(labels) - len(tokens[-1])
    filled = slice(1, None) if len(keys) > 1 else slice(None)
    memory = Memory(np.concatenate(keys[filled]), np.concatenate(tokens), fingerprint(params), settings)
    return Built(memory, left_out, pruned)


def frame_pairs(task: SpeechToText, params: Vector, data: Utterances, prune_above: float, device: str) -> Pairs:
    """Yield encoder frames and their aligned CTC labels; None for an utterance with more tokens than frames."""
    targets = task.targets(data)
    for positions, hidden, lengths, model in task.encoded(params, data, device):
        log_probs, keys = model.ctc(hidden), frame_keys(model, hidden)
        for row, position in enumerate(positions):
            frames, target = int(lengths[row]), targets[position]
            repeats = sum(one == other for one, other in zip(target, target[1:], strict=False))
            if frames < len(target) + repeats:
                yield None
                continue
            if target:
                labels = forced_align(log_probs[row, :frames][None].cpu(), torch.tensor([target]), blank=BLANK)[0][0]
            else:  # none of the transcript's characters has a token
                labels = torch.full((frames,), BLANK)
            labels = labels.to(hidden.device)
            yield keys[row, :frames], labels, unsure(log_probs[row, :frames], labels, prune_above)


def state_pairs(task: SpeechToText, params: Vector, data: Utterances, prune_above: float, device: str) -> Pairs:
    """Yield decoder states and the tokens that follow, including the end of the sentence."""
    targets = task.targets(data)
    for positions, hidden, lengths, model in task.encoded(params, data, device):
        of_batch = [targets[position] for position in positions]
        before, after, counted = teacher_forced(of_batch, model.bos, model.eos, device)
        states = model.decode(hidden, lengths, before)
        for row in range(len(positions)):
            of_row, tokens = states[row, counted[row]], after[row, counted[row]]
            yield of_row, tokens, unsure(model.attention_head(of_row).log_softmax(-1), tokens, prune_above)


def unsure(log_probs: Tensor, tokens: Tensor, above: float) -> Tensor:
    """Which of the tokens [n] have a probability of at most `above`, bool [n]. `log_probs`: [n, V]."""
    if above == 1:  # rounding may leave a probability above 1
        return torch.ones_like(tokens, dtype=torch.bool)
    return log_probs.gather(1, tokens[:, None])[:, 0].exp() <= above


def fingerprint(params: Vector) -> str:
    """A hash of a model's weights."""
    return hashlib.blake2b(np.ascontiguousarray(params).tobytes(), digest_size=10).hexdigest()
