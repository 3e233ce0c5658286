"""A memory of (hidden state, token) pairs, from which FedMem retrieves the nearest neighbours (kNN) while it decodes.

Du et al. Communication-Efficient Personalized Federated Learning for Speech-to-Text Tasks. ICASSP 2024, section 2.2.2.

    R          <- the k pairs (h_i, v_i) whose keys are nearest to the query q, d_i = ||h_i - q||^2
    p_mem(y)   <- sum_{i in R, v_i = y} exp(-d_i / T) / sum_{i in R} exp(-d_i / T)
    p(y)       <- lambda p_mem(y) + (1 - lambda) p_model(y)

A small memory is searched exactly, a larger one by lists (FAISS' IndexIVFFlat), the largest by IndexIVFPQ as in the
paper. The paper has 4096 lists and probes 64 of them. With fewer keys there are fewer lists; the same share of them is
probed, but at least 4, or 16 if keys are frames, and at most `probes`. A memory is valid for one model, whose hidden
states it holds, and carries that model's fingerprint. It may leave out pairs whose token the model is sure of (He,
Neubig, Berg-Kirkpatrick, Efficient Nearest Neighbor Language Models, EMNLP 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedray.core.ranges import Count, Natural, Ranged, Share, one_of

if TYPE_CHECKING:
    import faiss

Keys = npt.NDArray[np.float32]  # [pairs, dimensions]
Tokens = npt.NDArray[np.int64]

KEYS_A_LIST = 39  # FAISS warns when it trains with fewer keys for each list
CODE_BITS = 8
ITERATIONS = 10  # of k-means for the codes
# With 256 lists of frames, 4 probes cost two points of WER and 16 probes 0.2; with lists of states, 4 probes cost
# nothing.
FEWEST_PROBES = {"frames": 16, "states": 4}


@dataclass(frozen=True)
class MemorySettings(Ranged):
    """What a memory stores, and how it is searched."""

    # frames: hidden states of the encoder with the aligned CTC labels | states: of the decoder with the next token
    keys: str = one_of(("frames", "states"))
    lists: Count = 4096  # most lists that the index may have
    # Lists that a query searches if there are `lists` of them. With fewer lists, it searches the same share, but at
    # least `fewest_probes`, and never more than `probes`.
    probes: Count = 64
    fewest_probes: Count | None = None  # fewest lists that a query searches; null: 16 for frames, 4 for states
    prune_above: Share = 1.0  # pairs whose token has a higher probability under the model are left out; 1: none are
    exact_below: Natural = 2_000  # pairs; a memory with fewer is searched exactly
    compressed_from: Natural = 20_000  # pairs; a memory with fewer does not compress its keys
    # Bytes of a compressed key. null: one for every two dimensions; if their number is odd, one for every n of them,
    # where n is the smallest divisor above 1.
    code_bytes: Count | None = None


class Memory:
    """The (hidden state, token) pairs of one client and one model."""

    def __init__(self, keys: Keys, tokens: Tokens, model: str, settings: MemorySettings = MemorySettings()) -> None:
        """`keys`: hidden states. `model`: the fingerprint of the model that computed them.

        ValueError: the numbers of keys and tokens differ, or a key is not finite.
        """
        keys = np.ascontiguousarray(keys, np.float32)
        if keys.ndim != 2 or tokens.shape != (len(keys),):
            raise ValueError(f"{len(tokens)} tokens do not match keys of shape {list(keys.shape)}")
        if not np.isfinite(keys).all():
            raise ValueError("a memory cannot hold hidden states with NaN or infinity: the model has diverged")
        self.tokens, self.model, self.settings = np.asarray(tokens, np.int64), model, settings
        self.index = build_index(keys, settings)

    def __len__(self) -> int:
        return len(self.tokens)

    def search(self, queries: Keys, k: int) -> tuple[npt.NDArray[np.float32], Tokens]:
        """Squared distances and tokens of the k nearest pairs, both [queries, k], the nearest first.

        If a search finds fewer pairs, the remaining distances are infinite.
        """
        if not len(self):
            return np.full((len(queries), k), np.inf, np.float32), np.zeros((len(queries), k), np.int64)
        _faiss()
        distances, found = self.index.search(np.ascontiguousarray(queries, np.float32), k)
        missing = found < 0
        tokens = self.tokens[np.where(missing, 0, found)]
        return np.where(missing, np.float32(np.inf), np.maximum(distances, 0)), tokens

    def state(self) -> dict[str, Any]:
        """The memory as a client's state: tensors and strings."""
        index = torch.from_numpy(_faiss().serialize_index(self.index).copy())
        return {"index": index, "tokens": torch.from_numpy(self.tokens), "model": self.model}

    @classmethod
    def of(cls, state: Mapping[str, Any], model: str, settings: MemorySettings = MemorySettings()) -> Memory:
        """Restore a memory from a client's state.

        ValueError: the memory is of another model, whose keys are not comparable.
        """
        if state["model"] != model:
            raise ValueError(f"this memory is of the model {state['model']}, not of {model}: build it again")
        memory = cls.__new__(cls)
        memory.tokens, memory.model, memory.settings = np.asarray(state["tokens"]), model, settings
        memory.index = _faiss().deserialize_index(np.asarray(state["index"]))
        _probe(memory.index, settings)
        return memory


def build_index(keys: Keys, settings: MemorySettings) -> faiss.Index:
    """Build a FAISS index of the keys, with as many lists and code words as there are keys to train them with."""
    library = _faiss()
    size, dimensions = keys.shape
    lists = min(settings.lists, size // KEYS_A_LIST)
    index: Any  # the classes of FAISS have no types
    if size < max(settings.exact_below, KEYS_A_LIST):
        index = library.IndexFlatL2(dimensions)
    elif size < max(settings.compressed_from, KEYS_A_LIST << CODE_BITS):
        index = library.index_factory(dimensions, f"IVF{lists},Flat")
        index.train(keys)
    else:
        codes = code_bytes(dimensions, settings.code_bytes)
        index = library.index_factory(dimensions, f"IVF{lists},PQ{codes}x{CODE_BITS}")
        index.do_polysemous_training = False  # it takes most of the time, for a filter that fedray does not use
        index.pq.cp.niter = ITERATIONS
        index.train(keys)
    _probe(index, settings)
    index.add(keys)
    built: faiss.Index = index
    return built


def _faiss() -> Any:
    """Import FAISS and set it to one thread, as for torch on actors: more give other bits.

    OMP_NUM_THREADS may be unset. FAISS has its own OpenMP, which keeps the number per calling thread. ImportError:
    FAISS is missing.
    """
    try:
        import faiss  # here: it is large, and only memories need it
    except ImportError as error:
        raise ImportError("memories need FAISS: pip install faiss-cpu (or faiss-gpu; never both)") from error
    faiss.omp_set_num_threads(1)
    return faiss


def code_bytes(dimensions: int, wanted: int | None) -> int:
    """Bytes of a compressed key, each of which encodes the same number of dimensions.

    ValueError: `wanted` does not divide `dimensions`.
    """
    if wanted is None:
        return max((number for number in range(1, dimensions // 2 + 1) if dimensions % number == 0), default=1)
    if dimensions % wanted:
        fitting = [number for number in range(1, dimensions + 1) if dimensions % number == 0]
        raise ValueError(
            f"memory.code_bytes={wanted} does not divide a key of {dimensions} numbers: choose from {fitting}"
        )
    return wanted


def _probe(index: Any, settings: MemorySettings) -> None:
    """Set how many lists a query searches."""
    if hasattr(index, "nprobe"):
        share = round(index.nlist * settings.probes / settings.lists)
        fewest = settings.fewest_probes or FEWEST_PROBES[settings.keys]
        index.nprobe = min(index.nlist, settings.probes, max(fewest, share))


def p_mem(distances: Tensor, tokens: Tensor, temperature: float, vocabulary: int) -> Tensor:
    """Squared distances and tokens [..., k] -> probabilities [..., vocabulary]; all 0 where a search found nothing."""
    weights = _weights(distances, temperature)
    return weights.new_zeros(*tokens.shape[:-1], vocabulary).scatter_add_(-1, tokens, weights)


def p_mem_of(distances: Tensor, tokens: Tensor, temperature: float, wanted: Tensor) -> Tensor:
    """p_mem of only the tokens `wanted` [...], float64 [...]."""
    return (_weights(distances, temperature).double() * (tokens == wanted[..., None])).sum(-1)


def _weights(distances: Tensor, temperature: float) -> Tensor:
    """softmax(-distances / temperature), [..., k]; all 0 where a search found nothing."""
    nearest = distances.amin(-1, keepdim=True)
    found = torch.isfinite(nearest)
    weights = torch.exp(-(distances - torch.where(found, nearest, 0.0)) / temperature)
    return torch.where(found, weights / weights.sum(-1, keepdim=True), 0.0)


def fused(log_probs: Tensor, memory: Tensor, share: float | Tensor) -> Tensor:
    """log(share p_mem + (1 - share) p_model), [..., vocabulary]. `share`: one number, or [..., 1].

    Equals the model's log-probabilities bit for bit if `share` is the number 0, and where a search found nothing.
    `log_probs` may have more tokens than `memory`, such as bos and eos of an attention decoder: their p_mem is 0.
    """
    if not isinstance(share, Tensor) and share == 0:
        return log_probs
    memory = torch.nn.functional.pad(memory, (0, log_probs.shape[-1] - memory.shape[-1]))
    both = torch.log(share * memory + (1 - share) * log_probs.exp())
    return torch.where(memory.sum(-1, keepdim=True) > 0, both, log_probs)
