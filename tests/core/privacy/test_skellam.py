from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from fedray.core.privacy.divergences import skellam
from fedray.core.privacy.settings import AsIfSettings, ClipSettings, Skellam
from fedray.core.privacy.skellam import BETA, Encoding, Signs, planned
from fedray.core.seeds import numpy_generator
from fedray.core.types import Vector

BOUND = 0.5
KINDS = ("normal", "heavy", "one", "equal")


def encoding(size: int = 20_000, noise: float = 1.0, cohort: int = 50, bits: int = 16, **other: object) -> Encoding:
    chosen = {"size": size, "bound": BOUND, "noise": noise, "cohort": cohort, "bits": bits}
    return Encoding(**{"shares": cohort, "deviations": 4.0} | chosen | other)


def update(kind: str, client: int, size: int) -> Vector:
    """An update of norm `BOUND`. "one" and "equal" are the same for all clients, so their sums are the largest."""
    generator = numpy_generator("update", kind, client)
    values = {
        "normal": lambda: generator.standard_normal(size),
        "heavy": lambda: generator.standard_t(2, size),
        "one": lambda: np.eye(1, size, 7)[0],
        "equal": lambda: np.ones(size),
    }[kind]()
    return (values * (BOUND / np.linalg.norm(values))).astype(np.float32)


def signs_of(plan: Encoding) -> Signs:
    return plan.signs(numpy_generator(0, "rotation", 3))


@pytest.mark.parametrize("bits", [12, 16, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_has_the_error_of_its_noise_and_hardly_a_number_wraps(kind: str, bits: int) -> None:
    plan = encoding(bits=bits)
    signs, total, exact, true = (
        signs_of(plan),
        np.zeros(plan.length, np.uint32),
        np.zeros(plan.length),
        np.zeros(20_000),
    )
    for client in range(plan.cohort):
        delta = update(kind, client, plan.size)
        sent = plan.encode(delta, signs, numpy_generator(0, "rounding", client))
        assert sent.dtype == np.uint32 and int(sent.max()) < 2**bits
        true += delta
        total += sent
        exact += (sent.astype(np.int64) + plan.half) % (2 * plan.half) - plan.half
    noise = plan.noise_of(plan.cohort, numpy_generator(0, "noise", 3))
    decoded = plan.decode(total + noise, signs)
    wrapped = np.mean(np.abs(exact + noise) >= plan.half)
    assert wrapped <= 2 * scipy.stats.norm.sf(4.0) + 4 * math.sqrt(6e-5 / plan.length)
    ideal = plan.noise * BOUND  # the deviation of the Gaussian mechanism
    error = np.std(decoded - true) / ideal
    assert plan.deviation(plan.cohort) / ideal == pytest.approx(plan.inflation)
    assert error == pytest.approx(plan.inflation, rel=0.03)
    assert plan.inflation < {12: 1.1, 16: 1.001, 20: 1.00001}[bits]


def test_sums_do_not_depend_on_the_order_or_on_wrapping() -> None:
    plan = encoding(noise=0.0, cohort=7, bits=20)
    signs = signs_of(plan)
    sent = [plan.encode(update("normal", i, plan.size), signs, numpy_generator(i)) for i in range(7)]
    one = np.zeros(plan.length, np.uint32)
    for part in sent:
        one += part
    lanes = [sum(lane, np.zeros(plan.length, np.uint32)) for lane in (sent[6:3:-1], sent[3::-1])]
    other = lanes[1] + lanes[0] + np.uint32(2**20)  # wraps mod 2^32; decoding reduces mod 2^20
    assert plan.decode(one, signs).tobytes() == plan.decode(other, signs).tobytes()
    true = sum(update("normal", i, plan.size).astype(np.float64) for i in range(7))
    assert np.abs(plan.decode(one, signs) - true).max() < 10 * math.sqrt(7 / 4) / plan.scale


@pytest.mark.parametrize("case", range(60))
def test_the_scale_is_the_largest_that_fits_and_rounded_norms_keep_their_bound(case: int) -> None:
    draw = numpy_generator("case", case)
    size, cohort, bits = int(draw.integers(1, 5_000)), int(draw.integers(1, 300)), int(draw.integers(10, 33))
    noise, deviations = float(draw.uniform(0, 5)), float(draw.uniform(1, 6))
    try:
        plan = encoding(size, noise, cohort, bits, deviations=deviations)
    except ValueError as error:
        assert "raise bits" in str(error)
        return
    variance = (cohort * plan.scale * BOUND) ** 2 / plan.length + cohort / 4 + (noise * plan.rounded_bound) ** 2
    assert deviations * math.sqrt(variance) == pytest.approx(plan.half, rel=1e-6)
    sent = plan.encode(update("normal", 0, size), signs_of(plan), numpy_generator(1))
    signed = (sent.astype(np.int64) + plan.half) % (2 * plan.half) - plan.half
    assert np.linalg.norm(signed.astype(np.float64)) <= plan.rounded_bound * (1 + 1e-9)
    assert size <= plan.length <= 1.07 * size + 20


def test_rounding_has_no_bias_and_seldom_draws_again() -> None:
    plan = encoding(size=1_000, bits=11, noise=0.1)
    delta, signs = update("normal", 0, plan.size), signs_of(plan)
    generator = numpy_generator(2)
    mean = np.mean([plan.decode(plan.encode(delta, signs, generator), signs) for _ in range(400)], axis=0)
    assert np.abs(mean - delta).max() < 5 * 0.5 / plan.scale / math.sqrt(400)
    scaled = np.random.default_rng(3).standard_normal(plan.length)
    scaled *= plan.scale * BOUND / np.linalg.norm(scaled)
    draws = np.floor(scaled + generator.random((500, plan.length)))
    assert np.mean(np.linalg.norm(draws, axis=1) > plan.rounded_bound) < BETA


@pytest.mark.parametrize("clients", [5, 10, 20])
def test_noise_has_the_variance_of_the_sum_of_its_clients(clients: int) -> None:
    plan = encoding(size=100_000, cohort=20, shares=10)
    noise = plan.noise_of(clients, numpy_generator(0, "noise", clients))
    assert noise.dtype == np.int64
    variance = (plan.noise * plan.rounded_bound) ** 2 * clients / 10
    assert np.var(noise) == pytest.approx(variance, rel=5 * math.sqrt(2 / plan.length))
    assert abs(noise.mean()) < 5 * math.sqrt(variance / plan.length)
    assert plan.deviation(clients) == pytest.approx(math.sqrt(variance) / plan.scale)


def test_large_noise_keeps_its_variance() -> None:
    """With 28 bits numpy's own Poisson numbers would have a tenth more."""
    plan = encoding(size=100_000, cohort=20, shares=10, bits=28)
    noise = plan.noise_of(10, numpy_generator(0, "noise"))
    assert np.std(noise) == pytest.approx(plan.noise * plan.rounded_bound, rel=0.01)


def test_one_draw_has_the_distribution_of_the_sum_of_the_draws_of_clients() -> None:
    plan = encoding(size=20_000, noise=0.02, cohort=8, bits=10)  # so little noise that a Gaussian would differ
    together = plan.noise_of(8, numpy_generator(0))
    apart = sum(plan.noise_of(1, numpy_generator(1, client)) for client in range(8))
    values = np.arange(-2, 3)
    expected = scipy.stats.skellam(*2 * [(plan.noise * plan.rounded_bound) ** 2 / 2]).pmf(values) * plan.length
    for drawn in (together, apart):
        counts = np.array([np.sum(drawn == value) for value in values])
        assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))


def renyi(order: int, two: float, one: float, variance: float) -> tuple[float, float]:
    """Agarwal et al., theorem 3.5: the Gaussian's divergence of this order, and the most that the grid adds.

    `two` bounds the Euclidean norm of the difference, `one` the sum of its absolute values.
    """
    further = min(((2 * order - 1) * two**2 + 6 * one) / (4 * variance**2), 3 * one / (2 * variance))
    return order * two**2 / (2 * variance), further


@pytest.mark.parametrize("variance", [2.0, 30.0, 1000.0])
@pytest.mark.parametrize("order", [2, 8, 32])
def test_the_bound_holds_for_the_divergence_of_shifted_skellam_numbers(variance: float, order: int) -> None:
    shift = 2
    values = np.arange(-math.ceil(20 * math.sqrt(variance)) - 40, math.ceil(20 * math.sqrt(variance)) + 40)
    noise = scipy.stats.skellam(variance / 2, variance / 2)
    ratio = order * noise.logpmf(values - shift) + (1 - order) * noise.logpmf(values)
    ratio = ratio[np.isfinite(ratio)]
    exact = float(np.logaddexp.reduce(ratio)) / (order - 1)
    gaussian, further = renyi(order, shift, shift, variance)
    assert exact <= gaussian + further < 3 * gaussian


@pytest.mark.parametrize("size", [1_000, 178_000])
@pytest.mark.parametrize("cohort", [2, 5_000])
@pytest.mark.parametrize("noise", [0.3, 1.0, 8.0])
def test_with_as_few_bits_as_are_accepted_the_divergence_is_the_gaussians(size: int, cohort: int, noise: float) -> None:
    for bits in range(2, 33):
        with contextlib.suppress(ValueError):
            plan = planned(Skellam(delta=1e-5, noise=noise, bits=bits), noise, size, cohort)
            break
    two = 2 * plan.rounded_bound
    for order in (2, 8, 32):
        # |x| <= x^2 for whole numbers
        gaussian, further = renyi(order, two, min(math.sqrt(plan.length) * two, two**2), (noise * two / 2) ** 2)
        assert gaussian == pytest.approx(skellam(noise)[order - 2])
        assert further < 1e-3 * gaussian


def test_noise_of_a_few_whole_numbers_is_refused() -> None:
    coarse = Skellam(delta=1e-5, noise=0.3, bits=8)
    assert encoding(size=1_000, noise=0.3, cohort=2, bits=8), "it fits"
    with pytest.raises(ValueError, match=r"bits=8 is too few for noise 0\.3 of 2 clients: .* of [\d.]+ whole numbers"):
        planned(coarse, 0.3, 1_000, 2)
    assert planned(replace(coarse, as_if=AsIfSettings(cohort=100, population=10_000)), 0.3, 1_000, 2)


def test_the_settings_give_a_round_whose_noise_holds_from_the_threshold_on() -> None:
    chosen = Skellam(delta=1e-5, noise=0.8, clip=ClipSettings(norm=0.3), threshold=0.75, bits=18)
    plan = planned(chosen, 0.8, size=1_000, cohort=40)
    assert (plan.bound, plan.noise, plan.cohort, plan.shares, plan.bits) == (0.3, 0.8, 40, 30, 18)
    assert plan.deviation(30) == pytest.approx(0.8 * 0.3 * plan.inflation)


def test_too_few_bits_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"privacy.bits=8 is too few for 178,000 numbers of 1,000 clients"):
        encoding(size=178_000, noise=2.0, cohort=1_000, bits=8)


def test_an_update_that_is_not_clipped_is_our_error() -> None:
    plan = encoding()
    with pytest.raises(AssertionError, match="above its bound 0.5"):
        plan.encode(1.01 * update("normal", 0, plan.size), signs_of(plan), numpy_generator(0))
