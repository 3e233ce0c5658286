"""What a recogniser remembers of a client's speech, and decoding with it.

Two kinds of pairs (`memory.keys`): encoder frames with CTC's aligned labels, or teacher-forced states of the decoder with the token that
follows, as in Du et al. (ICASSP 2024).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torchaudio.functional import forced_align

from fedray.core.metrics import Metrics
from fedray.core.types import Received, Vector
from fedray.data.dataset import Utterances, batches
from fedray.data.scoring import edit_counts
from fedray.models.memory import Memory, MemorySettings, fused, p_mem, p_mem_of
from fedray.training.decoding import BLANK, GreedySearch, Hypothesis, Search, collapsed, inside
from fedray.training.recognition import EVALUATION_BATCH, Recognition, teacher_forced

ROUNDING = 1e-6  # of float32 probabilities
LEAST = math.log(torch.finfo(torch.float32).tiny)  # of a decoder's log-probabilities: SpeechBrain's beams lose their way among infinities


@dataclass(frozen=True)
class Retrieval:
    """How a memory speaks."""

    k: int
    share: float  # lambda: the memory's share of the distribution
    temperature: float

    @property
    def lead(self) -> float:
        """A token that the model gives so much more than the next stays the best: (1 - lambda) p > lambda + (1 - lambda) p_next."""
        return self.share / (1 - self.share) + ROUNDING if self.share < 1 else math.inf

    def __str__(self) -> str:
        return f"k={self.k} lambda={self.share:g} T={self.temperature:g}"


class WithMemory(Search):
    """Another search, on the fused distribution."""

    def __init__(self, search: Search, memory: Memory, retrieval: Retrieval) -> None:
        self.inner, self.memory, self.retrieval = search, memory, retrieval

    def transcribe(self, model: Any, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        if self.retrieval.share == 0:
            return self.inner.transcribe(model, hidden, lengths)
        best_alone = isinstance(self.inner, GreedySearch)
        return self.inner.transcribe(Remembering(model, self.memory, self.retrieval, lengths, best_alone), hidden, lengths)


class Remembering:
    """A model whose distribution, CTC's of each frame or the decoder's of each step, is fused with what a memory says.

    `lengths` [B]: of the utterances, in frames; those behind are not looked up. `best_alone`: only the best token of each frame is wanted.
    Frames where nothing that a memory can say would change it are not looked up either. All these keep the model's distribution.
    """

    def __init__(self, model: Any, memory: Memory, retrieval: Retrieval, lengths: Tensor, best_alone: bool = False) -> None:
        self._model, self._memory, self._retrieval, self._lengths, self._best_alone = model, memory, retrieval, lengths, best_alone

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def ctc(self, hidden: Tensor) -> Tensor:
        log_probs: Tensor = self._model.ctc(hidden)
        if self._memory.settings.keys != "frames":
            return log_probs
        asked = inside(hidden, self._lengths)
        if self._best_alone:
            best, following = log_probs.topk(2).values.exp().unbind(-1)
            asked &= best - following <= self._retrieval.lead
        if asked.any():
            log_probs[asked] = self._fused(log_probs[asked], hidden[asked])
        return log_probs

    @property
    def attention_head(self) -> nn.Module:
        head: nn.Module = self._model.attention_head
        return HeadWithMemory(head, self._fused) if self._memory.settings.keys == "states" else head

    def _fused(self, log_probs: Tensor, states: Tensor) -> Tensor:
        own = self._retrieval
        distances, tokens = self._memory.search(states.flatten(0, -2).cpu().numpy(), own.k)
        remembered = p_mem(torch.from_numpy(distances), torch.from_numpy(tokens), own.temperature, log_probs.shape[-1])
        return fused(log_probs, remembered.view_as(log_probs).to(log_probs.device), own.share)


class HeadWithMemory(nn.Module):
    """What SpeechBrain's searchers take for the decoder's linear layer: its outputs are normalised log-probabilities already."""

    def __init__(self, head: nn.Module, fuse: Callable[[Tensor, Tensor], Tensor]) -> None:
        """`fuse(log-probabilities, states)`"""
        super().__init__()
        self.w, self._head, self._fuse = head.w, head, fuse

    def forward(self, states: Tensor) -> Tensor:
        """States [B, D], or [B, L, D], of which searchers read the last step alone."""
        last = states[:, -1:] if states.ndim == 3 else states
        return self._fuse(self._head(last).log_softmax(-1), last).clamp(min=LEAST)


def remember(task: Recognition, params: Vector, data: Utterances, settings: MemorySettings, device: str) -> tuple[Memory, int]:
    """The memory of a client's utterances, and how many are not in it: those with more tokens than frames, which cannot be aligned."""
    keys, tokens = [np.zeros((0, 1), np.float32)], [np.zeros(0, np.int64)]
    left_out = 0
    pairs = aligned(task, params, data, device) if settings.keys == "frames" else predicted(task, params, data, device)
    for pair in pairs:
        if pair is None:
            left_out += 1
        else:
            keys.append(pair[0].cpu().numpy())
            tokens.append(pair[1].cpu().numpy().astype(np.int64))
    told = slice(1, None) if len(keys) > 1 else slice(None)
    return Memory(np.concatenate(keys[told]), np.concatenate(tokens), fingerprint(params), settings), left_out


Pairs = Iterator[tuple[Tensor, Tensor] | None]  # keys and tokens of an utterance


def aligned(task: Recognition, params: Vector, data: Utterances, device: str) -> Pairs:
    """Frames and their labels; None for an utterance with more tokens than frames."""
    targets = task.targets(data)
    for positions, hidden, lengths, model in encoded(task, params, data, device):
        log_probs = model.ctc(hidden)
        for row, position in enumerate(positions):
            frames, target = int(lengths[row]), targets[position]
            repeats = sum(one == other for one, other in zip(target, target[1:], strict=False))
            if frames < len(target) + repeats:
                yield None
                continue
            if target:
                labels = forced_align(log_probs[row, :frames][None].cpu(), torch.tensor([target]), blank=BLANK)[0][0]
            else:  # a transcript of characters that have no token
                labels = torch.full((frames,), BLANK)
            yield hidden[row, :frames], labels


def predicted(task: Recognition, params: Vector, data: Utterances, device: str) -> Pairs:
    """The decoder's states and what is to follow them, the end too."""
    targets = task.targets(data)
    for positions, hidden, lengths, model in encoded(task, params, data, device):
        before, after, counted = teacher_forced([targets[position] for position in positions], model.bos, model.eos, device)
        states = model.decode(hidden, lengths, before)
        for row in range(len(positions)):
            yield states[row, counted[row]], after[row, counted[row]]


def encoded(task: Recognition, params: Vector, data: Utterances, device: str) -> Iterator[tuple[list[int], Tensor, Tensor, Any]]:
    """Batch by batch: positions, encoder frames, lengths, and the model."""
    flat = task.flat(device)
    flat.load(params)
    flat.model.eval()
    with torch.no_grad():
        for batch in batches(data, EVALUATION_BATCH, None):
            moved = batch.to(device)
            yield batch.positions.tolist(), *flat.model.encode(moved.features, moved.lengths), flat.model


def fingerprint(params: Vector) -> str:
    """Of a model, by its weights."""
    return hashlib.blake2b(np.ascontiguousarray(params).tobytes(), digest_size=10).hexdigest()


Costs = npt.NDArray[np.float64]
Said = Iterator[tuple[tuple[int, float], Tensor]]  # (k, temperature), and p_mem of each state


def rescored(task: Recognition, params: Vector, data: Utterances, memory: Memory, settings: Sequence[Retrieval], device: str) -> Costs:
    """What each setting costs on labelled data, [settings], from one retrieval for the largest k, which serves them all.

    With frames as keys: the word error rate of greedy decoding, in percent. With states: nats a token of the transcripts, their ends
    included (a search would ask for other states under each setting).
    """
    measured = word_errors_of if memory.settings.keys == "frames" else surprise_of
    costs, units = np.zeros(len(settings)), 0
    for part, count in measured(task, params, data, memory, settings, device):
        costs += part
        units += count
    return costs / max(1, units)


def word_errors_of(
    task: Recognition, params: Vector, data: Utterances, memory: Memory, settings: Sequence[Retrieval], device: str
) -> Iterator[tuple[Costs, int]]:
    """Batch by batch 100 x the errors, and the words."""
    for positions, hidden, lengths, model in encoded(task, params, data, device):
        probabilities = model.ctc(hidden).exp().cpu()
        spoken = [data.texts[position] or "" for position in positions]
        best = voted(probabilities, remembered(memory, hidden, settings, probabilities.shape[-1]), settings)
        rows = torch.arange(len(spoken)).expand(len(settings), -1)[..., None]
        different, which = torch.cat([rows, best], -1).flatten(0, 1).unique(dim=0, return_inverse=True)  # most settings agree
        row = different[:, 0].tolist()
        heard = collapsed(different[:, 1:], lengths[row])
        counts = edit_counts([spoken[each] for each in row], [task.tokeniser.decode(tokens) for tokens in heard])
        errors = 100.0 * np.array([count.errors for count in counts])[which.view(len(settings), -1)].sum(1)
        yield errors, sum({each: count.length for each, count in zip(row, counts, strict=True)}.values())


def voted(probabilities: Tensor, said: Said, settings: Sequence[Retrieval]) -> Tensor:
    """The best token of each frame under each setting [settings, B, T]: the model's, unless the memory names another."""
    alone = probabilities.argmax(-1)
    best = alone.repeat(len(settings), 1, 1)
    for (k, temperature), each in said:
        memory = each.view_as(probabilities)
        disputed = (memory.argmax(-1) != alone) & (memory.sum(-1) > 0)
        asking = torch.tensor([place for place, one in enumerate(settings) if (one.k, one.temperature) == (k, temperature)])
        shares = torch.tensor([settings[place].share for place in asking])[:, None, None]
        both = shares * memory[disputed] + (1 - shares) * probabilities[disputed]
        best[(asking[:, None], *disputed.nonzero(as_tuple=True))] = both.argmax(-1)
    return best


def surprise_of(
    task: Recognition, params: Vector, data: Utterances, memory: Memory, settings: Sequence[Retrieval], device: str
) -> Iterator[tuple[Costs, int]]:
    """Batch by batch the negative log-likelihood of the tokens, and how many they are."""
    targets = task.targets(data)
    for positions, hidden, lengths, model in encoded(task, params, data, device):
        before, after, counted = teacher_forced([targets[position] for position in positions], model.bos, model.eos, device)
        states = model.decode(hidden, lengths, before)[counted]
        wanted = after[counted].cpu()
        alone = model.attention_head(states).log_softmax(-1).cpu().gather(1, wanted[:, None])[:, 0].double().exp()
        distances, tokens = retrieved(memory, states, settings)
        said = {kind: p_mem_of(distances[:, : kind[0]], tokens[:, : kind[0]], kind[1], wanted) for kind in kinds(settings)}
        shares = torch.isfinite(distances[:, 0]) * torch.tensor([[one.share] for one in settings], dtype=torch.float64)  # 0 of no memory
        both = [share * said[one.k, one.temperature] + (1 - share) * alone for one, share in zip(settings, shares, strict=True)]
        likelihoods = [each.log().sum() for each in both]
        yield -np.array([float(likelihood) for likelihood in likelihoods]), len(wanted)


def remembered(memory: Memory, states: Tensor, settings: Sequence[Retrieval], outputs: int) -> Said:
    """From one retrieval, and one at a time: with thousands of tokens each is large."""
    distances, tokens = retrieved(memory, states, settings)
    for k, temperature in kinds(settings):
        yield (k, temperature), p_mem(distances[:, :k], tokens[:, :k], temperature, outputs)


def retrieved(memory: Memory, states: Tensor, settings: Sequence[Retrieval]) -> tuple[Tensor, Tensor]:
    """Distances and tokens, [states, the largest k]."""
    distances, tokens = memory.search(states.flatten(0, -2).cpu().numpy(), max(one.k for one in settings))
    return torch.from_numpy(distances), torch.from_numpy(tokens)


def kinds(settings: Sequence[Retrieval]) -> set[tuple[int, float]]:
    return {(one.k, one.temperature) for one in settings}


def word_errors(task: Recognition, received: Received, data: Utterances, searches: Mapping[str, Search]) -> Metrics:
    """The word error rate in percent under each search, by its name, from one encoder pass; NaN for no utterances."""
    if not len(data):
        return Metrics.of(dict.fromkeys(searches, (0.0, 0.0)))
    results = task.transcribe(received.params, data, list(searches.values()), received.device)
    spoken = [text or "" for text in data.texts]
    rates = {}
    for name, hypotheses in zip(searches, results, strict=True):
        counts = edit_counts(spoken, [hypothesis.text for hypothesis in hypotheses])
        rates[name] = (100.0 * sum(count.errors for count in counts), float(sum(count.length for count in counts)))
    return Metrics.of(rates)
