"""An update and its vectors, packed into one flat vector."""

from __future__ import annotations

import numpy as np

from fedray.core.packing import Packing
from fedray.core.types import NOTHING, Layer, Update


def update(*values: float, **vectors: list[float]) -> Update:
    return Update(
        np.array(values, np.float32), {}, vectors={name: np.array(v, np.float32) for name, v in vectors.items()}
    )


def test_what_was_packed_is_unpacked() -> None:
    """Vectors follow the delta in the order of their names."""
    given = update(1, 2, b=[5], a=[3, 4])
    packing = Packing.of(given)
    flat = packing.pack(given.delta, given)
    assert flat.tolist() == [1, 2, 3, 4, 5] and flat.dtype == np.float32 and packing.size == 5
    delta, vectors = packing.unpack(flat)
    assert delta.tolist() == [1, 2] and {name: v.tolist() for name, v in vectors.items()} == {"a": [3, 4], "b": [5]}


def test_an_update_without_vectors_is_its_delta() -> None:
    given = update(1, 2)
    assert Packing.of(given).pack(given.delta, given) is given.delta
    delta, vectors = Packing.of(given).unpack(given.delta)
    assert delta.tolist() == [1, 2] and vectors == {}


def test_no_parameters() -> None:
    packing = Packing.of(Update(NOTHING, {}))
    assert packing.size == 0 and packing.layers([Layer("all", 0, 10)]) == []
    alone = Packing.of(update(a=[1, 2]))
    assert alone.layers([Layer("all", 0, 10)]) == [Layer("vectors/a", 0, 2)]


def test_layers_are_cut_where_the_vectors_begin() -> None:
    layers = [Layer("first", 0, 1), Layer("second", 1, 9), Layer("third", 9, 12)]
    packing = Packing.of(update(1, 2, b=[5], a=[3, 4], c=[]))
    assert packing.layers(layers) == [
        Layer("first", 0, 1), Layer("second", 1, 2), Layer("vectors/a", 2, 4), Layer("vectors/b", 4, 5)
    ]  # fmt: skip


def test_what_differs_in_names_or_sizes_is_not_the_same() -> None:
    assert Packing.of(update(1, a=[1])) == Packing.of(update(2, a=[3]))
    assert (
        len({Packing.of(u) for u in (update(1), update(1, a=[1]), update(1, b=[1]), update(1, a=[1, 2]), update(1, 2))})
        == 5
    )
    assert str(Packing.of(update(1, 2, a=[1]))) == "2 numbers and 1 of a"
