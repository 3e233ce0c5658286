"""The noise has the distribution, the scale and the names that the account assumes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kurtosis

from fedray.core.privacy.clipping import Clipping
from fedray.core.privacy.mechanism import Gathered, Mechanism, rotation
from fedray.core.privacy.settings import AsIfSettings, ClipSettings, Gaussian, Local, Skellam
from fedray.core.types import Layer, Vector

SIZE, COHORT, NORM, Z = 100_000, 50, 0.5, 2.0
MODEL = (Layer("a", 0, 60_000), Layer("b", 60_000, SIZE))
SETTINGS = Gaussian(delta=1e-5, noise=Z, clip=ClipSettings(norm=NORM, layers="uniform"))
MECHANISM = Mechanism(SETTINGS, Z, COHORT)
CLIPPING = Clipping(SETTINGS.clip, MODEL, SIZE)
NONE = np.zeros(2, np.int64)


def released(round: int, total: Vector | None = None, answered: int = 0) -> Vector:
    mean = MECHANISM.release(Gathered(total, NONE, answered, COHORT), CLIPPING, CLIPPING.first, 7, round).mean
    assert mean is not None
    return mean


def test_the_noise_of_a_round_is_gaussian_of_deviation_z_c_over_the_cohort() -> None:
    rounds = np.stack([released(t) for t in range(20)]).astype(np.float64) * COHORT / (Z * NORM)
    assert rounds.std() == pytest.approx(1, rel=0.01) and abs(rounds.mean()) < 0.01
    assert abs(kurtosis(rounds.ravel())) < 0.05
    products = np.corrcoef(rounds) - np.eye(20)
    assert np.abs(products).max() < 5 / np.sqrt(SIZE)


def test_the_noise_follows_from_its_name() -> None:
    assert np.array_equal(released(3), released(3)) and not np.array_equal(released(3), released(4))


def test_the_sum_is_divided_by_the_expected_cohort_whoever_answers() -> None:
    total = np.full(SIZE, 3.0, np.float32)
    for answered in (1, COHORT):
        found = released(0, total, answered=answered) - released(0)
        assert found == pytest.approx(3.0 / COHORT, abs=1e-6)


def test_local_noise_grows_with_the_clients_that_answer() -> None:
    local = Mechanism(Local(delta=1e-5, noise=Z, clip=SETTINGS.clip), Z, COHORT)
    assert local.deviation(CLIPPING.first, 9) == pytest.approx(3 * Z * NORM)
    assert MECHANISM.deviation(CLIPPING.first, 9) == pytest.approx(Z * NORM)


def test_a_small_cohort_stands_for_a_large_one() -> None:
    large = replace(SETTINGS, as_if=AsIfSettings(cohort=5000, population=1_000_000))
    assert Mechanism(large, Z, COHORT).deviation(CLIPPING.first, 0) == pytest.approx(Z * NORM * COHORT / 5000)

    local = Mechanism(Local(delta=1e-5, noise=Z, clip=SETTINGS.clip, as_if=large.as_if), Z, COHORT)
    alone = Mechanism(Local(delta=1e-5, noise=Z, clip=SETTINGS.clip), Z, 5000)
    one, other = (each.deviation(CLIPPING.first, round(each.cohort)) / each.cohort for each in (local, alone))
    assert one == pytest.approx(other), "the means of both cohorts have the same noise"

    whole = Mechanism(Skellam(delta=1e-5, noise=Z, clip=ClipSettings(norm=NORM), as_if=large.as_if), Z, COHORT)
    encoding = whole.encoding(1000, COHORT)
    assert encoding is not None and encoding.noise == pytest.approx(Z * COHORT / 5000)


def test_correlated_noise_is_a_sum_of_the_draws_of_the_last_rounds() -> None:
    weights = (1.0, -0.5, -0.125)
    correlated = replace(MECHANISM, weights=weights)
    size = 5_000
    plain = [MECHANISM.draw(size, 7, t) for t in range(6)]
    matrix = sum(w * np.eye(6, k=-back) for back, w in enumerate(weights))
    expected = matrix @ np.stack(plain)
    for t in range(6):
        assert correlated.draw(size, 7, t) == pytest.approx(expected[t], abs=1e-6)
    assert sorted(round for _, _, round in correlated.kept) == [3, 4, 5], "the draws of the last rounds"
    assert (correlated.draw(size, 8, 5) != correlated.draw(size, 7, 5)).all()
    for t in (0, 5):
        found = correlated.release(Gathered(None, NONE, 0, COHORT), CLIPPING, CLIPPING.first, 7, t)
        assert found.row["privacy/noise_std"] == pytest.approx(np.std(found.mean), rel=0.02)
    assert correlated.growth(0) == 1 and correlated.growth(5) == pytest.approx((1 + 1 / 4 + 1 / 64) ** 0.5)


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_an_adaptive_bound_finds_the_quantile_of_the_norms(quantile: float) -> None:
    clip = ClipSettings(kind="adaptive", norm=0.1, quantile=quantile, layers="uniform")
    mechanism = Mechanism(Gaussian(delta=1e-5, noise=1.0, clip=clip), 1.0, 1000)
    norms = np.random.default_rng(0).lognormal(0, 0.5, (1000, 2))
    bounds = CLIPPING.first
    for t in range(200):
        within = (norms <= bounds).sum(0)
        bounds = mechanism.adapted(bounds, mechanism.share_within(within, 1000, 7, t))
    assert (norms <= bounds).mean(0) == pytest.approx(quantile, abs=0.05)


def test_the_noise_of_counts_is_new_in_each_round_and_as_small_as_that_of_the_claimed_cohort() -> None:
    clip = ClipSettings(kind="adaptive", norm=0.1)
    large = Gaussian(delta=1e-5, noise=1.0, clip=clip, as_if=AsIfSettings(cohort=5000, population=1_000_000))
    mechanism = Mechanism(large, 1.0, COHORT)
    assert mechanism.count_noise == 250
    nobody = np.zeros(1, np.int64)
    shares = np.array([mechanism.share_within(nobody, 0, 7, t)[0] for t in range(2000)])
    assert shares.mean() == pytest.approx(0.5, abs=0.005) and shares.std() == pytest.approx(250 / 5000, rel=0.05)


def test_clients_that_do_not_answer_leave_the_bound_where_it_is() -> None:
    clip = ClipSettings(kind="adaptive", norm=0.1, count_noise=1e-9)
    mechanism = Mechanism(Gaussian(delta=1e-5, noise=1.0, clip=clip), 1.0, 1000)
    bounds, share = np.array([0.1]), mechanism.share_within(np.array([0]), 0, 7, 0)
    assert mechanism.adapted(bounds, share) == pytest.approx(bounds)


def test_the_row_says_by_which_share_bounds_adapt() -> None:
    clip = replace(SETTINGS.clip, kind="adaptive", count_noise=1e-9)
    mechanism = replace(MECHANISM, noise=0.0, settings=replace(SETTINGS, clip=clip))
    gathered = Gathered(np.ones(SIZE, np.float32), np.array([3, 6]), COHORT, COHORT)
    released = mechanism.release(gathered, CLIPPING, CLIPPING.first, 7, 0)
    share = np.array([released.row[f"privacy/within|{group}"] for group in CLIPPING.names])
    assert share == pytest.approx(1 - np.array([3, 6]) / COHORT)
    assert released.bounds == pytest.approx(mechanism.adapted(CLIPPING.first, share))


def test_the_row_says_what_was_released() -> None:
    gathered = Gathered(np.ones(SIZE, np.float32), np.array([3, 6]), 12, COHORT)
    row = MECHANISM.release(gathered, CLIPPING, CLIPPING.first, 7, 0).row
    assert row["privacy/clipped|a"] == 0.25 and row["privacy/clipped|b"] == 0.5
    assert row["privacy/bound|a"] == pytest.approx(NORM / np.sqrt(2))
    assert row["privacy/noise_std"] == pytest.approx(Z * NORM / COHORT)
    assert row["privacy/snr"] == pytest.approx(1 / (Z * NORM), rel=0.02)
    silent = Mechanism(replace(SETTINGS, noise=0.0), 0.0, COHORT)
    assert "privacy/snr" not in silent.release(Gathered(None, NONE, 0, COHORT), CLIPPING, CLIPPING.first, 7, 0).row


@pytest.mark.long
def test_whole_numbers_are_opened_where_enough_clients_answer() -> None:
    settings = Skellam(delta=1e-5, noise=0.5, clip=ClipSettings(norm=NORM), bits=20, neighbours=10)
    mechanism, clipping = Mechanism(settings, 0.5, COHORT), Clipping(settings.clip, (), 1000)
    encoding = mechanism.encoding(1000, COHORT)
    assert encoding is not None
    signs = rotation(encoding, 7, 3)
    updates = np.random.default_rng(0).standard_normal((COHORT, 1000)).astype(np.float32)
    updates *= NORM / np.linalg.norm(updates, axis=1, keepdims=True) * 0.99
    coded = [encoding.encode(update, signs, np.random.default_rng(number)) for number, update in enumerate(updates)]
    total = np.sum(coded, axis=0, dtype=np.uint32)
    found = mechanism.release(Gathered(total, np.zeros(1, np.int64), COHORT, COHORT), clipping, clipping.first, 7, 3)
    assert found.mean is not None and found.row["privacy/opened"] == 1
    error = found.mean - updates.mean(0)
    assert error.std() == pytest.approx(found.row["privacy/noise_std"], rel=0.1)
    some = np.sum(coded[:40], axis=0, dtype=np.uint32)
    found = mechanism.release(Gathered(some, np.zeros(1, np.int64), 40, COHORT), clipping, clipping.first, 7, 3)
    assert found.mean is not None
    error = found.mean - updates[:40].sum(0) / COHORT
    assert error.std() == pytest.approx(found.row["privacy/noise_std"], rel=0.06), "of forty clients' noise"
    few = mechanism.release(Gathered(total, np.zeros(1, np.int64), 9, COHORT), clipping, clipping.first, 7, 3)
    assert few.mean is None and few.row["privacy/opened"] == 0
