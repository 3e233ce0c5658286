"""Codes of vectors: their size follows from the shape alone, and their errors are bounded."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedray.core.compression.codes import Code, Float32, Half, Int4, Int8, Steps, blocks
from fedray.core.compression.links import Link, traffic
from fedray.core.compression.settings import DOWNLOADS, UPLOADS, TopKUpload
from fedray.core.compression.sparse import TopK

CODES = (Float32(), Half(), Int8(), Int4(), TopK(), TopK(0.3, Half()), TopK(0.5, Int8()), TopK(1.0))
SHAPES = ((0,), (1,), (2,), (7,), (255,), (1024,), (5000,), (3, 0, 1030, 1), (256, 257, 40_000))


def drawn(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32) * np.float32(1e-3)


@pytest.mark.parametrize("code", CODES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("vector", ["zeros", "normal", "constant"])
def test_the_bytes_follow_from_the_shape_alone(code: Code, shape: tuple[int, ...], vector: str) -> None:
    count = sum(shape)
    values = {"zeros": np.zeros(count, np.float32), "normal": drawn(count), "constant": np.full(count, -2, np.float32)}
    for generator in (None, np.random.default_rng(0)):
        data = code.encode(values[vector], shape, generator)
        assert len(data) == code.size(shape)
        found = code.decode(data, shape)
        assert found.dtype == np.float32 and found.shape == (count,) and found.flags.writeable
        assert code.exact is isinstance(code, Float32) and (not code.exact or np.array_equal(found, values[vector]))


@pytest.mark.parametrize("code", [Int8(), Int4()], ids=str)
def test_steps_are_off_by_half_a_step_of_their_block(code: Steps) -> None:
    shape, vector = (300, 5000), drawn(5300)
    vector[:300] *= 1e4  # a tensor of large numbers, which must not change the scale of the next one
    starts, lengths = blocks(shape, code.block)
    steps = np.repeat(np.maximum.reduceat(np.abs(vector), starts) / code.most, lengths)
    nearest = code.decode(code.encode(vector, shape), shape)
    assert (np.abs(nearest - vector) <= 0.5001 * steps).all()
    drawn_at_random = code.decode(code.encode(vector, shape, np.random.default_rng(0)), shape)
    assert (np.abs(drawn_at_random - vector) <= 1.0001 * steps).all()
    assert np.abs(drawn_at_random - vector).max() > 0.9 * steps.max()


@pytest.mark.parametrize("code", [Int8(), Int4()], ids=str)
def test_random_rounding_has_no_bias(code: Steps) -> None:
    """The mean of 400 draws lies within five standard errors, each at most half a step / 20."""
    vector, shape, generator = drawn(500), (500,), np.random.default_rng(1)
    total = np.zeros(500)
    for _ in range(400):
        total += code.decode(code.encode(vector, shape, generator), shape)
    step = np.abs(vector).max() / code.most
    assert np.abs(total / 400 - vector).max() < 5 * 0.5 * step / 20
    assert abs(float((total / 400 - vector).mean())) < 5 * 0.5 * step / 20 / np.sqrt(500)


def test_blocks_end_with_their_tensor() -> None:
    starts, lengths = blocks((3, 0, 1030, 1), 1024)
    assert starts.tolist() == [0, 3, 1027, 1033] and lengths.tolist() == [3, 1024, 6, 1]


@pytest.mark.parametrize("code", [Int8(), Int4()], ids=str)
def test_numbers_at_the_ends_of_float32(code: Steps) -> None:
    limit = np.finfo(np.float32).max
    for number in (limit, np.float32(1e-45), np.float32(3e-43), np.float32(1e-38)):
        vector = np.array([number, -number, 0.0], np.float32)
        found = code.decode(code.encode(vector, (3,), np.random.default_rng(0)), (3,))
        assert found[0] == -found[1] and found[2] == 0 and 0 <= found[0] <= limit


@pytest.mark.parametrize("code", [Int8(), Int4()], ids=str)
def test_the_largest_number_is_not_rounded_beyond_the_last_step(code: Steps) -> None:
    """With the highest possible draw, `most` + draw rounds to `most` + 1, which would decode with the opposite sign."""
    highest = SimpleNamespace(random=lambda size, kind: np.full(size, np.nextafter(kind(1), kind(0))))
    vector = np.full(300, 1e-3, np.float32)
    found = code.decode(code.encode(vector, (300,), highest), (300,))  # type: ignore[arg-type]
    assert found == pytest.approx(vector)


def test_half_precision() -> None:
    vector = drawn(100)
    assert np.array_equal(Half().decode(Half().encode(vector, (100,)), (100,)), vector.astype(np.float16))
    assert np.isinf(Half().decode(Half().encode(np.array([1e6], np.float32), (1,)), (1,))).all()


def test_what_follows_the_tensors_travels_as_it_is() -> None:
    vector, tensors = drawn(130), (100, 20)
    link = Link(Int4(), tensors)
    data = link.encode(vector)
    found = link.decode(data, 130)
    assert len(data) == link.size(130) == Int4().size(tensors) + 40
    assert np.array_equal(found[120:], vector[120:]) and not np.array_equal(found[:120], vector[:120])
    assert link.size(120) == Int4().size(tensors)
    assert link.size(7) == Int4().size((7,)), "a vector beside the delta is one tensor"
    assert link.size(0) == len(link.encode(vector[:0])) == 0


N = 178_083  # parameters of a small Conformer


def test_the_factors() -> None:
    """Bytes of a float32 update / those of its code. The largest 5 % in int8 give 44.8; with a bitmap, 22.8."""
    plain = 4 * N
    assert round(plain / Int8().size((N,)), 1) == 4.0
    assert round(plain / Int4().size((N,)), 1) == 7.8
    largest = TopKUpload(values="int8").code
    values = Int8().size((round(0.05 * N),))
    assert round(plain / ((N + 7) // 8 + values), 1) == 22.8
    assert round(plain / largest.size((N,)), 1) == 44.8
    up, down = traffic(largest, Int8(), N)
    assert round(2 * plain / (up + down), 1) == 7.3
    assert round(2 * plain / ((N + 7) // 8 + values + down), 1) == 6.8


def test_the_traffic_of_every_setting() -> None:
    for upload in UPLOADS.values():
        for download in DOWNLOADS.values():
            code, tensors = upload().code, (1000, 24)
            assert traffic(code, download(), 1030, tensors) == (
                code.size(tensors) + 24,
                download().size(tensors) + 24,
            )
            assert traffic(code, download(), 1024)[0] == code.size((1024,))
    assert traffic(Float32(), Float32(), 10) == (40, 40)


@pytest.mark.parametrize("code", [code for code in CODES if not code.exact], ids=str)
def test_with_feedback_the_sum_arrives(code: Code) -> None:
    """With feedback, the sum lacks only what the last update lost; without it, the sum lacks more with each update."""
    delta, shape = drawn(5000), (5000,)
    lost, total = np.zeros(5000, np.float32), np.zeros(5000)
    for _ in range(50):
        wanted = delta + lost
        arrived = code.decode(code.encode(wanted, shape), shape)
        lost = wanted - arrived
        total += arrived
    missing = np.abs(50.0 * delta - total)
    assert missing.max() <= np.abs(lost).max() * 1.001 + 1e-5
    alone = 50.0 * np.abs(code.decode(code.encode(delta, shape), shape) - delta)
    assert missing.mean() < alone.mean() or code == TopK(1.0)
