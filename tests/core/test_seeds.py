from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest
import torch

from fedray.core.seeds import derive, numpy_generator, seed_all, share, torch_generator


def test_a_seed_is_the_hash_of_its_names() -> None:
    """The hashed bytes are length, type and value of each name, spelt out so that no refactor changes every run."""
    data = b"".join(len(name).to_bytes(8, "little") + name for name in (b"i7", b"scohort", b"i12"))
    expected = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1
    assert derive(7, "cohort", 12) == expected
    assert 0 <= expected < 2**63


def test_types_and_borders_count() -> None:
    names = [(1,), ("1",), ("1", ""), ("", "1"), (1, 1), (11,), ("i1",), ("a", "b"), ("ab",), ("b", "a"), (-1,), ()]
    assert len({derive(*each) for each in names}) == len(names)


def test_integers_of_numpy_are_integers() -> None:
    assert derive(np.int64(3), np.str_("x")) == derive(3, "x")
    with pytest.raises(TypeError):
        derive(0.5)  # type: ignore[arg-type]


def test_generators_follow_their_names() -> None:
    assert numpy_generator(0, "a").random() == numpy_generator(0, "a").random() != numpy_generator(0, "b").random()
    first, again, other = (torch.rand(4, generator=torch_generator(0, name)) for name in ("a", "a", "b"))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_shares_follow_their_names_and_are_uniform() -> None:
    """The mean of 10,000 shares and their number in each tenth lie within five standard deviations."""
    shares = np.array([share(0, "x", number) for number in range(10_000)])
    assert share(0, "x", 3) == shares[3] == (derive(0, "x", 3) >> 10) / 2**53 and shares.min() >= 0 and shares.max() < 1
    assert abs(shares.mean() - 0.5) < 5 * np.sqrt(1 / 12 / 10_000)
    assert np.abs(np.bincount((shares * 10).astype(int)) - 1000).max() < 5 * np.sqrt(900)


def test_seed_all_reaches_every_global_generator() -> None:
    drawn = []
    for names in ((0, "client"), (0, "client"), (1, "client")):
        seed_all(*names)
        drawn.append((torch.rand(1).item(), np.random.rand(), random.random()))
    assert drawn[0] == drawn[1]
    assert all(a != b for a, b in zip(drawn[0], drawn[2], strict=True))
