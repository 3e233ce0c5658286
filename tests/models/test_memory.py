"""The memory, small and large, against float64 references; saved and loaded."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
import torch

from fedray.models.memory import Memory, MemorySettings, code_bytes, fused, p_mem

VOCABULARY = 30


def pairs(size: int, dimensions: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Keys [size, dimensions] and tokens [size]: the keys of a token lie around its own centre."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((VOCABULARY, dimensions))
    tokens = generator.integers(0, VOCABULARY, size)
    return (centres[tokens] + 0.3 * generator.standard_normal((size, dimensions))).astype(np.float32), tokens


def reference(keys: np.ndarray, tokens: np.ndarray, query: np.ndarray, k: int, temperature: float) -> np.ndarray:
    distances = ((keys.astype(np.float64) - query.astype(np.float64)) ** 2).sum(axis=1)
    nearest = np.argsort(distances, kind="stable")[:k]
    weights = np.exp(-(distances[nearest] - distances[nearest].min()) / temperature)
    found = np.zeros(VOCABULARY)
    np.add.at(found, tokens[nearest], weights / weights.sum())
    return found


@pytest.mark.parametrize("k", [1, 4, 16])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 200.0])
def test_both_distributions_equal_a_float64_reference(k: int, temperature: float) -> None:
    keys, tokens = pairs(500)
    queries, _ = pairs(20, seed=1)
    distances, found = Memory(keys, tokens, "m").search(queries, k)
    probabilities = p_mem(torch.from_numpy(distances), torch.from_numpy(found), temperature, VOCABULARY)
    log_probs = torch.randn(20, VOCABULARY, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    both = fused(log_probs, probabilities, 0.3)
    for place, query in enumerate(queries):
        expected = reference(keys, tokens, query, k, temperature)
        assert np.allclose(probabilities[place], expected, atol=1e-4 if temperature > 0.1 else 2e-3)
        assert np.allclose(both[place].exp(), 0.3 * expected + 0.7 * log_probs[place].double().exp().numpy(), atol=2e-3)
    assert torch.allclose(both.exp().sum(-1), torch.ones(20), atol=1e-5)


def test_far_away_neighbours_weigh_all_the_same() -> None:
    """Far neighbours keep weights, although exp(-distance / temperature) alone would be 0 for all of them."""
    keys = np.array([[100.0, 0.0], [0.0, 101.0]], np.float32)
    distances, tokens = Memory(keys, np.array([3, 4]), "m").search(np.zeros((1, 2), np.float32), 2)
    assert distances.tolist() == [[10_000.0, 10_201.0]]
    assert p_mem(torch.from_numpy(distances), torch.from_numpy(tokens), 10.0, 6)[0, 3] == pytest.approx(1.0)


def test_without_a_share_the_model_speaks_bit_for_bit() -> None:
    log_probs = torch.randn(4, VOCABULARY).log_softmax(-1)
    assert fused(log_probs, torch.full((4, VOCABULARY), 1 / VOCABULARY), 0.0) is log_probs


def test_an_empty_memory_and_fewer_pairs_than_neighbours() -> None:
    queries, _ = pairs(3)
    nothing = Memory(np.zeros((0, 16), np.float32), np.zeros(0, np.int64), "m")
    distances, tokens = nothing.search(queries, 4)
    assert distances.shape == (3, 4) and np.isinf(distances).all()
    empty = p_mem(torch.from_numpy(distances), torch.from_numpy(tokens), 1.0, VOCABULARY)
    log_probs = torch.randn(3, VOCABULARY).log_softmax(-1)
    assert not empty.any() and torch.equal(fused(log_probs, empty, 0.5), log_probs)
    keys, tokens = pairs(2)
    distances, found = Memory(keys, tokens, "m").search(queries, 4)
    assert np.isinf(distances[:, 2:]).all() and np.isfinite(distances[:, :2]).all()
    assert torch.allclose(
        p_mem(torch.from_numpy(distances), torch.from_numpy(found), 5.0, VOCABULARY).sum(-1), torch.ones(3)
    )


def test_further_tokens_of_a_decoder_have_the_models_share() -> None:
    log_probs = torch.zeros(1, 4).log_softmax(-1)
    both = fused(log_probs, torch.tensor([[1.0, 0.0]]), 0.5).exp()
    assert both.tolist() == [[0.625, 0.125, 0.125, 0.125]]


def test_a_large_memory_is_compressed_and_finds_the_same_tokens() -> None:
    keys, tokens = pairs(20_000)
    queries, meant = pairs(200, seed=1)
    exact = Memory(keys, tokens, "m", MemorySettings(exact_below=10**9))
    large = Memory(keys, tokens, "m", MemorySettings(lists=64, probes=8, code_bytes=4))
    assert type(large.index).__name__ == "IndexIVFPQ" and large.index.nlist == 64 and large.index.nprobe == 8
    assert large.state()["index"].numel() < exact.state()["index"].numel() / 3
    one, other = (memory.search(queries, 8)[1] for memory in (exact, large))
    assert (one[:, 0] == other[:, 0]).mean() > 0.95 and (other[:, 0] == meant).mean() > 0.95
    again, _ = Memory(keys, tokens, "m", MemorySettings(lists=64, probes=8, code_bytes=4)).search(queries, 8)
    assert np.array_equal(again, large.search(queries, 8)[0]), "the same memory from the same pairs"


def test_a_memory_of_middling_size_is_searched_by_lists_and_finds_what_lies_about_as_near() -> None:
    keys, tokens = pairs(10_000)
    queries, _ = pairs(200, seed=1)
    exact = Memory(keys, tokens, "m", MemorySettings(exact_below=10**9))
    listed = Memory(keys, tokens, "m")
    assert type(listed.index).__name__ == "IndexIVFFlat" and (listed.index.nlist, listed.index.nprobe) == (256, 16)
    one, other = (memory.search(queries, 8)[0] for memory in (exact, listed))
    assert (other >= one * (1 - 1e-4)).all()
    assert np.isclose(one, other, rtol=1e-3, atol=1e-3).mean() > 0.98, "what is found lies as near"
    states = Memory(keys, tokens, "m", MemorySettings(keys="states"))
    assert states.index.nprobe == 4
    few = states.search(queries, 8)[0]
    assert (few >= one * (1 - 1e-4)).all() and (few / one).mean() < 1.05
    wider = Memory(keys, tokens, "m", MemorySettings(keys="states", probes=128))
    assert wider.index.nprobe == 8
    assert np.isclose(one, wider.search(queries, 8)[0], rtol=1e-3, atol=1e-3).mean() > 0.9, "what is found lies as near"
    assert Memory(keys, tokens, "m", MemorySettings(probes=512)).index.nprobe == 32
    assert Memory(keys, tokens, "m", MemorySettings(keys="states", fewest_probes=6)).index.nprobe == 6
    assert type(Memory(*pairs(1_000), "m").index).__name__ == "IndexFlatL2"
    assert Memory(*pairs(100), "m", MemorySettings(exact_below=0)).index.nlist == 2


def test_bytes_that_do_not_divide_a_key_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"memory.code_bytes=10 does not divide a key of 16 numbers: choose from \[1, 2, 4, 8, 16\]"
    ):
        Memory(*pairs(10_000), "m", MemorySettings(compressed_from=0, code_bytes=10))


def test_keys_of_odd_sizes_are_compressed_as_far_as_their_size_can_be_divided() -> None:
    assert [code_bytes(size, None) for size in (64, 66, 129, 7)] == [32, 33, 43, 1]


def test_it_survives_a_file_that_holds_tensors_alone() -> None:
    keys, tokens = pairs(10_000)
    memory = Memory(keys, tokens, "m1", MemorySettings(lists=32, probes=4, compressed_from=0, code_bytes=2))
    file = io.BytesIO()
    torch.save(memory.state(), file)
    file.seek(0)
    again = Memory.of(torch.load(file, weights_only=True), "m1", MemorySettings(probes=4))
    queries, _ = pairs(10, seed=2)
    assert all(
        np.array_equal(one, other)
        for one, other in zip(memory.search(queries, 8), again.search(queries, 8), strict=True)
    )
    with pytest.raises(ValueError, match="is of the model m1, not of m2: build it again"):
        Memory.of(memory.state(), "m2")


def test_what_is_no_memory() -> None:
    keys, tokens = pairs(5)
    with pytest.raises(ValueError, match="4 tokens do not match keys"):
        Memory(keys, tokens[:4], "m")
    keys[2, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        Memory(keys, tokens, "m")
    for wrong in ({"lists": 0}, {"probes": 0}, {"exact_below": -1}, {"compressed_from": -1}, {"code_bytes": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least"):
            MemorySettings(**wrong)


def test_one_thread_whatever_the_environment_says() -> None:
    """FAISS uses one thread, even if OMP_NUM_THREADS is unset. OpenMP keeps the number per calling thread."""
    keys, tokens = pairs(300)

    def threads(work: str) -> int:
        faiss.omp_set_num_threads(3)
        assert faiss.omp_get_max_threads() == 3
        memory.search(keys[:2], 2) if work == "search" else Memory(keys, tokens, "model")
        return int(faiss.omp_get_max_threads())

    memory = Memory(keys, tokens, "model")
    with ThreadPoolExecutor(1) as another:
        for work in ("search", "build"):
            assert another.submit(threads, work).result() == 1
