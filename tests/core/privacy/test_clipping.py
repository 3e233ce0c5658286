"""Layers share the bound C as `layers` says, and each layer is clipped separately."""

from __future__ import annotations

import numpy as np
import pytest

from fedray.core.privacy.clipping import ALL, Clipping
from fedray.core.privacy.settings import ClipSettings
from fedray.core.types import Layer

MODEL = (Layer("first", 0, 3), Layer("second", 3, 8), Layer("first", 8, 12), Layer("buffers", 12, 20))
SIZE = 12  # without the buffers


def test_layers_share_the_bound_by_their_number_or_their_sizes() -> None:
    one = Clipping(ClipSettings(norm=2.0), MODEL, SIZE)
    assert one.names == (ALL,) and one.first == pytest.approx([2.0])
    uniform = Clipping(ClipSettings(norm=2.0, layers="uniform"), MODEL, SIZE)
    assert uniform.names == ("first", "second") and uniform.first == pytest.approx([2 / np.sqrt(2)] * 2)
    by_size = Clipping(ClipSettings(norm=2.0, layers="dim"), MODEL, SIZE)
    assert by_size.first == pytest.approx([2 * np.sqrt(7 / 12), 2 * np.sqrt(5 / 12)])


def test_a_layer_in_two_stretches_has_one_norm() -> None:
    clipping = Clipping(ClipSettings(layers="uniform"), MODEL, SIZE)
    delta = np.arange(SIZE, dtype=np.float32)
    first = np.concatenate([delta[:3], delta[8:]])
    assert clipping.norms(delta) == pytest.approx([np.linalg.norm(first), np.linalg.norm(delta[3:8])])
    clipped, flags = clipping.clip(delta, np.array([1.0, 100.0]))
    assert flags.tolist() == [True, False]
    assert np.array_equal(clipped[3:8], delta[3:8])
    assert clipped[8:] / delta[8:] == pytest.approx(1 / np.linalg.norm(first), rel=1e-5)


def test_a_model_without_layers_is_one_group() -> None:
    assert Clipping(ClipSettings(layers="dim"), (), 5).names == (ALL,)
