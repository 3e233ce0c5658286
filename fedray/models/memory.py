"""A memory of (hidden state -> token) pairs: what FedMem retrieves from while it decodes.

Du et al. Communication-Efficient Personalized Federated Learning for Speech-to-Text Tasks. ICASSP 2024, section 2.2.2.

    R          <- the k pairs (h_i, v_i) whose keys are nearest to the query q, d_i = ||h_i - q||^2
    p_mem(y)   <- sum_{i in R, v_i = y} exp(-d_i / T) / sum_{i in R} exp(-d_i / T)
    p(y)       <- lambda p_mem(y) + (1 - lambda) p_model(y)

Small memories are searched exactly, larger ones by lists, and the largest through FAISS' IndexIVFPQ as in the paper, 4096 lists of which 64
are probed; with fewer keys there are fewer lists, and as small a share of them is probed, but no fewer than 4, or 16 with frames as keys. A
memory belongs to the model whose hidden states it holds: it carries that model's fingerprint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Keys = npt.NDArray[np.float32]  # [pairs, dimensions]
Tokens = npt.NDArray[np.int64]

KEYS = ("frames", "states")
KEYS_A_LIST = 39  # the fewest with which FAISS trains a list without a warning
CODE_BITS = 8
ITERATIONS = 10  # of k-means for the codes
FEWEST_PROBES = {"frames": 16, "states": 4}  # of 256 lists of frames, 4 cost two points of WER, 16 0.2; of states 4 cost none


@dataclass(frozen=True)
class MemorySettings:
    keys: str = "frames"  # frames: the encoder's, with CTC's aligned labels | states: the decoder's, with the token that follows
    lists: int = 4096  # at most
    probes: int = 64  # lists that a query looks into where there are `lists`; of fewer the same share, but at least FEWEST_PROBES
    exact_below: int = 2_000  # pairs; fewer are searched exactly
    compressed_from: int = 20_000  # pairs; of fewer the keys are kept as they are
    code_bytes: int | None = None  # a key, compressed; null: one for every two dimensions

    def __post_init__(self) -> None:
        if self.keys not in KEYS:
            raise ValueError(f"memory.keys is {' or '.join(KEYS)}, not {self.keys!r}")
        for name in ("lists", "probes"):
            if getattr(self, name) < 1:
                raise ValueError(f"memory.{name} must be at least 1")
        if min(self.exact_below, self.compressed_from) < 0 or (self.code_bytes is not None and self.code_bytes < 1):
            raise ValueError("memory.exact_below and compressed_from must not be below 0, and memory.code_bytes at least 1")


class Memory:
    """Pairs of one client under one model."""

    def __init__(self, keys: Keys, tokens: Tokens, model: str, settings: MemorySettings = MemorySettings()) -> None:
        """`model`: the fingerprint of the model whose hidden states the keys are. ValueError where keys and tokens do not match."""
        keys = np.ascontiguousarray(keys, np.float32)
        if keys.ndim != 2 or tokens.shape != (len(keys),):
            raise ValueError(f"{len(tokens)} tokens do not match keys of shape {list(keys.shape)}")
        if not np.isfinite(keys).all():
            raise ValueError("a memory cannot hold hidden states that are NaN or infinite: the model has diverged")
        self.tokens, self.model, self.settings = np.asarray(tokens, np.int64), model, settings
        self.index = build_index(keys, settings)

    def __len__(self) -> int:
        return len(self.tokens)

    def search(self, queries: Keys, k: int) -> tuple[npt.NDArray[np.float32], Tokens]:
        """Squared distances and tokens of the k nearest pairs, [queries, k] both, the nearest first; infinite where there are fewer."""
        if not len(self):
            return np.full((len(queries), k), np.inf, np.float32), np.zeros((len(queries), k), np.int64)
        distances, found = self.index.search(np.ascontiguousarray(queries, np.float32), k)
        missing = found < 0
        tokens = self.tokens[np.where(missing, 0, found)]
        return np.where(missing, np.float32(np.inf), np.maximum(distances, 0)), tokens

    def state(self) -> dict[str, Any]:
        """What a client keeps of it: tensors and strings alone."""
        index = torch.from_numpy(faiss.serialize_index(self.index).copy())
        return {"index": index, "tokens": torch.from_numpy(self.tokens), "model": self.model}

    @classmethod
    def of(cls, state: Mapping[str, Any], model: str, settings: MemorySettings = MemorySettings()) -> Memory:
        """From a client's state. ValueError for the memory of another model: its keys mean nothing to this one."""
        if state["model"] != model:
            raise ValueError(f"this memory was made by the model {state['model']}, not by {model}: build it again")
        memory = cls.__new__(cls)
        memory.tokens, memory.model, memory.settings = np.asarray(state["tokens"]), model, settings
        memory.index = faiss.deserialize_index(np.asarray(state["index"]))
        _probe(memory.index, settings)
        return memory


def build_index(keys: Keys, settings: MemorySettings) -> Any:
    """A FAISS index that holds the keys, with no more lists and code words than there are keys to train them."""
    size, dimensions = keys.shape
    lists = min(settings.lists, size // KEYS_A_LIST)
    if size < max(settings.exact_below, KEYS_A_LIST):
        index = faiss.IndexFlatL2(dimensions)
    elif size < max(settings.compressed_from, KEYS_A_LIST << CODE_BITS):
        index = faiss.index_factory(dimensions, f"IVF{lists},Flat")
        index.train(keys)
    else:
        codes = code_bytes(dimensions, settings.code_bytes)
        index = faiss.index_factory(dimensions, f"IVF{lists},PQ{codes}x{CODE_BITS}")
        index.do_polysemous_training = False  # most of the time, for a filter that is not used
        index.pq.cp.niter = ITERATIONS
        index.train(keys)
    _probe(index, settings)
    index.add(keys)
    return index


def code_bytes(dimensions: int, wanted: int | None) -> int:
    """A key's, of which each stands for as many dimensions. ValueError for a number that does not divide them."""
    if wanted is None:
        return math.gcd(dimensions, dimensions // 2)
    if dimensions % wanted:
        fitting = [number for number in range(1, dimensions + 1) if dimensions % number == 0]
        raise ValueError(f"memory.code_bytes={wanted} does not divide a key of {dimensions} numbers: choose from {fitting}")
    return wanted


def _probe(index: Any, settings: MemorySettings) -> None:
    if hasattr(index, "nprobe"):
        share = round(index.nlist * settings.probes / settings.lists)
        index.nprobe = min(index.nlist, settings.probes, max(FEWEST_PROBES[settings.keys], share))


def p_mem(distances: Tensor, tokens: Tensor, temperature: float, vocabulary: int) -> Tensor:
    """[..., k] squared distances and tokens -> [..., vocabulary] probabilities; all 0 where nothing was found."""
    weights = _weights(distances, temperature)
    return weights.new_zeros(*tokens.shape[:-1], vocabulary).scatter_add_(-1, tokens, weights)


def p_mem_of(distances: Tensor, tokens: Tensor, temperature: float, wanted: Tensor) -> Tensor:
    """The same of one token each, [...], without the rest of the vocabulary; float64."""
    return (_weights(distances, temperature).double() * (tokens == wanted[..., None])).sum(-1)


def _weights(distances: Tensor, temperature: float) -> Tensor:
    """softmax(-distances / temperature), [..., k]; all 0 where nothing was found."""
    nearest = distances.amin(-1, keepdim=True)
    found = torch.isfinite(nearest)
    weights = torch.exp(-(distances - torch.where(found, nearest, 0.0)) / temperature)
    return torch.where(found, weights / weights.sum(-1, keepdim=True), 0.0)


def fused(log_probs: Tensor, memory: Tensor, share: float) -> Tensor:
    """log(share p_mem + (1 - share) p_model), [..., vocabulary]; with share 0, or where nothing was found, the model's, bit for bit.

    Tokens behind those that the memory knows (an attention decoder's further ones) have p_mem 0.
    """
    if share == 0:
        return log_probs
    memory = torch.nn.functional.pad(memory, (0, log_probs.shape[-1] - memory.shape[-1]))
    both = torch.log(share * memory + (1 - share) * log_probs.exp())
    return torch.where(memory.sum(-1, keepdim=True) > 0, both, log_probs)
