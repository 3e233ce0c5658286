from __future__ import annotations

import numpy as np
import pytest

from fedray.core.compression import Compression

DELTA = np.random.default_rng(0).standard_normal(5000).astype(np.float32) * np.float32(1e-3)


@pytest.mark.parametrize(
    ("kind", "sent", "off"), [("none", 20_000, 0.0), ("half", 10_000, 2e-6), ("int8", 5_000 + 5 * 4, 2e-5)]
)
def test_bytes_and_what_is_lost(kind: str, sent: int, off: float) -> None:
    arrived, travelled = Compression(kind).send(DELTA)
    assert travelled == sent and arrived.dtype == np.float32 and arrived.shape == DELTA.shape
    assert np.abs(arrived - DELTA).max() <= off


def test_eight_bits_are_off_by_half_a_step_of_their_block() -> None:
    arrived, _ = Compression("int8", block=100).send(DELTA)
    steps = np.repeat(np.abs(DELTA.reshape(-1, 100)).max(1) / 127, 100)
    assert (np.abs(arrived - DELTA) <= 0.5001 * steps).all()
    assert len(np.unique(np.round(arrived[:100] / steps[0]))) <= 255


def test_with_feedback_the_sum_arrives() -> None:
    """After any number of updates no more is missing than what the last one lost."""
    upload, lost, total = Compression("int8"), np.zeros_like(DELTA), np.zeros(DELTA.size)
    for _ in range(50):
        arrived, _ = upload.send(DELTA + lost)
        lost = DELTA + lost - arrived
        total += arrived
    without = 50.0 * upload.send(DELTA)[0].astype(np.float64)
    assert np.abs(total - 50.0 * DELTA).max() < 4e-5 < np.abs(without - 50.0 * DELTA).max()


@pytest.mark.parametrize("kind", ["none", "half", "int8"])
def test_nothing_and_what_is_no_number(kind: str) -> None:
    upload = Compression(kind)
    assert not upload.send(np.zeros(7, np.float32))[0].any()
    assert upload.send(np.zeros(0, np.float32))[0].shape == (0,)
    broken = np.array([1.0, np.nan, 2.0], np.float32)
    assert np.isnan(upload.send(broken)[0]).any()
    assert not np.isfinite(upload.send(np.array([1.0, np.inf], np.float32))[0]).all()


def test_a_number_too_large_for_half_precision_is_infinite() -> None:
    assert np.isinf(Compression("half").send(np.array([1e6], np.float32))[0]).all()


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="upload.kind must be one of none, half, int8, not 'zip'"):
        Compression("zip")
    with pytest.raises(ValueError, match="upload.block must be at least 1, not 0"):
        Compression(block=0)
    delta = np.ones(3, np.float32)
    kept = [one.send_with_feedback(delta, None)[2] for one in (Compression(), Compression("int8", feedback=False))]
    assert kept == [None, None] and Compression("half").send_with_feedback(delta, None)[2] is not None
