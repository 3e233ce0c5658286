"""What a recogniser remembers of a client's speech, and decoding with it: encoder frames as keys, CTC's aligned labels as values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torchaudio.functional import forced_align

from fedray.core.metrics import Metrics
from fedray.core.types import Received, Vector
from fedray.data.dataset import Utterances, batches
from fedray.data.scoring import edit_counts
from fedray.models.memory import Memory, MemorySettings, fused, p_mem
from fedray.training.decoding import Hypothesis, Search, greedy
from fedray.training.recognition import EVALUATION_BATCH, Recognition


@dataclass(frozen=True)
class Retrieval:
    """How a memory speaks."""

    k: int
    share: float  # lambda: the memory's share of the distribution
    temperature: float


class WithMemory(Search):
    """Another search, on the fused distribution."""

    def __init__(self, search: Search, memory: Memory, retrieval: Retrieval) -> None:
        self.inner, self.memory, self.retrieval = search, memory, retrieval

    def transcribe(self, model: Any, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        return self.inner.transcribe(Remembering(model, self.memory, self.retrieval), hidden, lengths)


class Remembering:
    """A model whose CTC distribution is fused with what a memory says of each frame."""

    def __init__(self, model: Any, memory: Memory, retrieval: Retrieval) -> None:
        self._model, self._memory, self._retrieval = model, memory, retrieval

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def ctc(self, hidden: Tensor) -> Tensor:
        log_probs, own = self._model.ctc(hidden), self._retrieval
        if own.share == 0:
            return log_probs
        distances, tokens = self._memory.search(hidden.flatten(0, 1).cpu().numpy(), own.k)
        remembered = p_mem(torch.from_numpy(distances), torch.from_numpy(tokens), own.temperature, log_probs.shape[-1])
        return fused(log_probs, remembered.view_as(log_probs).to(log_probs.device), own.share)


def remember(task: Recognition, params: Vector, data: Utterances, settings: MemorySettings, device: str) -> tuple[Memory, int]:
    """The memory of a client's utterances, and how many are not in it: those with more tokens than frames."""
    targets = task.targets(data)
    keys, tokens, left_out = [], [], 0
    for positions, hidden, log_probs, lengths in encoded(task, params, data, device):
        for row, position in enumerate(positions):
            frames, target = int(lengths[row]), torch.tensor([targets[position]])
            repeats = sum(one == other for one, other in zip(targets[position], targets[position][1:], strict=False))
            if frames < target.shape[1] + repeats:
                left_out += 1
                continue
            aligned, _ = forced_align(log_probs[row, :frames][None].cpu(), target, blank=0)
            keys.append(hidden[row, :frames].cpu().numpy())
            tokens.append(aligned[0].numpy())
    width = keys[0].shape[1] if keys else 1
    stacked = np.concatenate(keys) if keys else np.zeros((0, width), np.float32)
    labels = np.concatenate(tokens) if tokens else np.zeros(0, np.int64)
    return Memory(stacked, labels.astype(np.int64), fingerprint(params), settings), left_out


def encoded(task: Recognition, params: Vector, data: Utterances, device: str) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
    """Batch by batch: positions, hidden states, CTC's log-probabilities, lengths."""
    flat = task.flat(device)
    flat.load(params)
    flat.model.eval()
    with torch.no_grad():
        for batch in batches(data, EVALUATION_BATCH, None):
            moved = batch.to(device)
            hidden, lengths = flat.model.encode(moved.features, moved.lengths)
            yield batch.positions.tolist(), hidden, flat.model.ctc(hidden), lengths


def fingerprint(params: Vector) -> str:
    """Of a model, by its weights."""
    return hashlib.blake2b(np.ascontiguousarray(params).tobytes(), digest_size=10).hexdigest()


def rescored(
    task: Recognition, params: Vector, data: Utterances, memory: Memory, settings: Sequence[Retrieval], device: str
) -> npt.NDArray[np.int64]:
    """Word errors of greedy decoding under each setting, [settings]: what the largest k retrieves serves them all."""
    errors = np.zeros(len(settings), np.int64)
    most = max(one.k for one in settings)
    for positions, hidden, log_probs, lengths in encoded(task, params, data, device):
        found = [torch.from_numpy(each) for each in memory.search(hidden.flatten(0, 1).cpu().numpy(), most)]
        spoken = [data.texts[position] or "" for position in positions]
        remembered: dict[tuple[int, float], Tensor] = {}
        for place, one in enumerate(settings):
            kind = (one.k, one.temperature)
            if kind not in remembered:
                remembered[kind] = p_mem(found[0][:, : one.k], found[1][:, : one.k], one.temperature, log_probs.shape[-1])
            both = fused(log_probs.cpu(), remembered[kind].view_as(log_probs), one.share)
            texts = [task.tokeniser.decode(tokens) for tokens in greedy(both, lengths)]
            errors[place] += sum(count.errors for count in edit_counts(spoken, texts))
    return errors


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
