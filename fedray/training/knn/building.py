"""Building a client's memory: (hidden state, token) pairs of the client's utterances under one model.

`memory.keys: frames` stores encoder frames with CTC's aligned labels; `states` stores teacher-forced decoder states
with the token that follows, as in Du et al. (ICASSP 2024).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torchaudio.functional import forced_align

from fedray.core.types import Vector
from fedray.data.features.dataset import Utterances
from fedray.models.memory import Memory, MemorySettings
from fedray.training.decoding.search import BLANK
from fedray.training.recognisers import teacher_forced
from fedray.training.speech_to_text import SpeechToText

Pairs = Iterator[tuple[Tensor, Tensor] | None]  # keys and tokens of each utterance; None: left out


def build_memory(
    task: SpeechToText, params: Vector, data: Utterances, settings: MemorySettings, device: str
) -> tuple[Memory, int]:
    """Build the memory of a client's utterances. Also returns the number of utterances left out.

    CTC cannot align an utterance with more tokens than frames.
    """
    keys, tokens = [np.zeros((0, 1), np.float32)], [np.zeros(0, np.int64)]
    left_out = 0
    pairs = frame_pairs if settings.keys == "frames" else state_pairs
    for pair in pairs(task, params, data, device):
        if pair is None:
            left_out += 1
        else:
            keys.append(pair[0].cpu().numpy())
            tokens.append(pair[1].cpu().numpy().astype(np.int64))
    filled = slice(1, None) if len(keys) > 1 else slice(None)
    return Memory(np.concatenate(keys[filled]), np.concatenate(tokens), fingerprint(params), settings), left_out


def frame_pairs(task: SpeechToText, params: Vector, data: Utterances, device: str) -> Pairs:
    """Yield encoder frames and their aligned CTC labels; None for an utterance with more tokens than frames."""
    targets = task.targets(data)
    for positions, hidden, lengths, model in task.encoded(params, data, device):
        log_probs = model.ctc(hidden)
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
            yield hidden[row, :frames], labels


def state_pairs(task: SpeechToText, params: Vector, data: Utterances, device: str) -> Pairs:
    """Yield decoder states and the tokens that follow, the end of the sentence included."""
    targets = task.targets(data)
    for positions, hidden, lengths, model in task.encoded(params, data, device):
        of_batch = [targets[position] for position in positions]
        before, after, counted = teacher_forced(of_batch, model.bos, model.eos, device)
        states = model.decode(hidden, lengths, before)
        for row in range(len(positions)):
            yield states[row, counted[row]], after[row, counted[row]]


def fingerprint(params: Vector) -> str:
    """A hash of a model's weights."""
    return hashlib.blake2b(np.ascontiguousarray(params).tobytes(), digest_size=10).hexdigest()
