"""How much a stale update counts."""

from __future__ import annotations

import pytest

from fedray.core.devices.staleness import STALENESS, ConstantStaleness, HingeStaleness, PolynomialStaleness


@pytest.mark.parametrize("kind", STALENESS)
def test_an_update_to_the_newest_model_counts_in_full_and_older_ones_never_more(kind: str) -> None:
    factors = [STALENESS[kind]().factor(behind) for behind in range(30)]
    assert factors[0] == 1.0 and factors == sorted(factors, reverse=True) and factors[-1] > 0


def test_by_hand() -> None:
    assert PolynomialStaleness().factor(3) == 0.5 and PolynomialStaleness(2.0).factor(1) == 0.25
    assert [HingeStaleness(0.5, 2).factor(behind) for behind in (2, 4, 8)] == [1.0, 0.5, 0.25]
    assert ConstantStaleness().factor(100) == 1.0
