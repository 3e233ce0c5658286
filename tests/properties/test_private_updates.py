"""One more client changes the sum of a private round by at most the bound, whatever its update and the layers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedray.core.privacy.clipping import Clipping
from fedray.core.privacy.settings import ClipSettings
from fedray.core.privacy.skellam import Encoding
from fedray.core.ranges import words
from fedray.core.types import Layer

SIZE = 12
MODEL = (Layer("first", 0, 3), Layer("second", 3, 8), Layer("first", 8, 12), Layer("buffers", 12, 20))


@given(st.integers(0), st.integers(-30, 30), st.integers(-10, 10), st.sampled_from(words(ClipSettings)["layers"]))
def test_no_update_is_longer_than_c(seed: int, size: int, bound: int, layers: str) -> None:
    norm, delta = 2.0**bound, np.random.default_rng(seed).standard_normal(SIZE, np.float32) * np.float32(2.0**size)
    clipping = Clipping(ClipSettings(norm=norm, layers=layers), MODEL, SIZE)
    clipped, flags = clipping.clip(delta, clipping.first)
    assert np.linalg.norm(clipped.astype(np.float64)) <= norm
    assert (clipping.norms(clipped) <= clipping.first).all()
    assert flags.any() or np.array_equal(clipped, delta)


@given(st.integers(0), st.integers(1, 90), st.integers(-10, 10), st.integers(14, 32))
def test_no_encoded_update_is_longer_than_b(seed: int, size: int, bound: int, bits: int) -> None:
    """Skellam clients send whole numbers: one client changes the sum that the noise hides by at most B."""
    plan = Encoding(size, 2.0**bound, noise=1.0, cohort=5, shares=5, bits=bits, deviations=4.0)
    generator = np.random.default_rng(seed)
    delta = generator.standard_normal(size) * np.eye(1, size, seed % size)[0] ** (seed % 2)  # one number, or all
    delta *= plan.bound / np.linalg.norm(delta)
    sent = plan.encode(delta.astype(np.float32), plan.signs(generator), generator)
    signed = (sent.astype(np.int64) + plan.half) % (2 * plan.half) - plan.half
    assert np.linalg.norm(signed.astype(np.float64)) <= plan.rounded_bound * (1 + 1e-12)
