from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from fedray.core.privacy import attacks
from fedray.core.privacy.skellam import Encoding
from fedray.core.seeds import numpy_generator

DELTA = 1e-5
TRIALS = 100
# With 95 % confidence, this many of TRIALS may contradict a true claim: exceeded once in 10,000 tests.
MOST = int(scipy.stats.binom.ppf(1 - 1e-4, TRIALS, 0.05))


def coins(generator: np.random.Generator, canaries: int) -> np.ndarray:
    return generator.random(canaries) < 0.5


def test_auroc_is_the_share_of_pairs_in_order() -> None:
    inside, outside = np.array([3.0, 1.0, 2.0]), np.array([2.0, 0.0])
    assert attacks.auroc(inside, outside) == pytest.approx((2 + 1 + 1.5) / 6)


@pytest.mark.parametrize(("share", "trials"), [(0.05, 20), (0.5, 33), (0.99, 100), (1.0, 7), (0.0, 7)])
def test_clopper_pearson_covers_the_share(share: float, trials: int) -> None:
    covered = 0.0
    for count in range(trials + 1):
        low, high = attacks.clopper_pearson(count, trials, 0.9)
        exact = scipy.stats.binomtest(count, trials).proportion_ci(0.9, "exact")
        assert (low, high) == pytest.approx((exact.low, exact.high))
        if low <= share <= high:
            covered += float(scipy.stats.binom.pmf(count, trials, share))
    assert covered >= 0.9 - 1e-9


def test_true_positives_at_a_rate_of_false_ones() -> None:
    outside = np.arange(200.0)
    rate = attacks.true_positives(np.array([150.0, 197.0, 198.0, 500.0]), outside, 0.01)
    assert (rate.rate, rate.threshold) == (0.5, 197.0)  # two outside scores are above: 198 and 199
    assert (rate.low, rate.high) == attacks.clopper_pearson(2, 4)
    assert rate.false == attacks.clopper_pearson(2, 200)[1]
    few = attacks.true_positives(outside, np.arange(20.0), 0.01)
    assert few.threshold == 19.0
    assert few.false == pytest.approx(1 - 0.025 ** (1 / 20))


def test_the_p_value_without_delta_is_the_binomial_tail() -> None:
    q = math.e / (1 + math.e)
    assert attacks.p_value(100, 60, 50, 1.0, 0.0) == pytest.approx(scipy.stats.binom.sf(49, 60, q))
    assert attacks.p_value(100, 60, 0, 1.0, 0.0) == 1.0
    values = [attacks.p_value(1_000, 200, 150, epsilon, 1e-4) for epsilon in np.linspace(0, 3, 20)]
    assert values == sorted(values)
    assert values[5] > attacks.p_value(1_000, 200, 150, np.linspace(0, 3, 20)[5], 1e-6)
    tail = attacks.p_value(200, 200, 190, 1.0, 0.0)
    ours, others = (attacks.p_value(canaries, 200, 190, 1.0, 1e-6) - tail for canaries in (200, 1_000))
    assert others == pytest.approx(5 * ours), "all canaries count, with those that are left open"


def test_perfect_guesses_give_the_bound_by_hand() -> None:
    inside, outside = np.full(50, 1.0), np.zeros(50)
    # All 100 guesses are right: q^100 = 0.05 / 3 at the bound.
    q = (0.05 / 3) ** (1 / 100)
    assert attacks.one_run(inside, outside, 0.0) == pytest.approx(math.log(q / (1 - q)), abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_randomised_response_is_hardly_ever_contradicted_and_a_worse_one_is_caught(epsilon: float) -> None:
    """A canary's score says whether it is inside, truthfully with probability e^epsilon / (1 + e^epsilon)."""
    contradicted, caught = 0, 0
    for trial in range(TRIALS):
        generator = numpy_generator("response", trial)
        inside = coins(generator, 400)
        for told, worse in ((epsilon, False), (epsilon + 1.5, True)):
            truly = generator.random(400) < 1 / (1 + math.exp(-told))
            scores = (inside == truly).astype(float)
            bound = attacks.one_run(scores[inside], scores[~inside], 0.0)
            caught += worse and bound > epsilon
            contradicted += (not worse) and bound > epsilon
    assert contradicted <= MOST
    assert caught > 0.8 * TRIALS


def gaussian_scores(noise: float, count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of `count` directions inside and `count` outside: products with the noisy sum of those inside [1,000]."""
    size = 1_000
    directions = np.stack([attacks.direction(size, generator) for _ in range(2 * count)])
    released = directions[:count].sum(0) + noise * generator.standard_normal(size)
    scores = directions @ released
    return scores[:count], scores[count:]


def test_directions_have_norm_one_and_are_almost_orthogonal() -> None:
    rows = np.stack([attacks.direction(4_000, numpy_generator(canary)) for canary in range(20)])
    assert rows.dtype == np.float32
    products = rows @ rows.T
    assert np.diag(products) == pytest.approx(1.0, abs=1e-6)
    assert np.abs(products - np.diag(np.diag(products))).max() < 6 / math.sqrt(4_000)


@pytest.mark.parametrize("noise", [0.7, 2.0])
def test_the_gaussian_mechanism_is_hardly_ever_contradicted_and_a_quarter_of_its_noise_is_caught(noise: float) -> None:
    claim = attacks.gaussian_epsilon(1 / noise, DELTA)
    contradicted, caught, estimates = 0, 0, []
    for trial in range(TRIALS):
        generator = numpy_generator("gaussian", trial)
        found = attacks.separation(*gaussian_scores(noise, 30, generator))
        estimates.append(found.mu)
        contradicted += found.epsilon(DELTA)[1] > claim
        caught += attacks.separation(*gaussian_scores(noise / 4, 30, generator)).epsilon(DELTA)[1] > claim
    assert contradicted <= MOST
    assert caught > 0.95 * TRIALS
    assert np.mean(estimates) == pytest.approx(1 / noise, rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize("noise", [1.5, 3.0])
def test_the_attack_in_one_run_agrees_with_the_gaussian_mechanism(noise: float) -> None:
    claim = attacks.gaussian_epsilon(1 / noise, DELTA)
    contradicted = 0
    for trial in range(TRIALS):
        generator = numpy_generator("threshold", trial)
        inside, outside = 1 + noise * generator.standard_normal(1_000), noise * generator.standard_normal(1_000)
        contradicted += attacks.one_run(inside, outside, DELTA) > claim
    assert contradicted <= MOST


@pytest.mark.long
def test_an_audit_of_the_skellam_mechanism_finds_its_noise_and_a_quarter_of_it() -> None:
    """Thirty clients send directions of norm C; noise of a sixteenth of the clients has a quarter of the deviation."""
    plan = Encoding(2_000, bound=0.1, noise=1.0, cohort=32, shares=32, bits=16, deviations=4.0)
    claim = attacks.gaussian_epsilon(1.0, DELTA)
    bounds: dict[int, list[float]] = {32: [], 2: []}
    for trial in range(20):
        generator = numpy_generator("skellam", trial)
        directions = [attacks.direction(plan.size, generator) for _ in range(60)]
        signs = plan.signs(generator)
        total = sum(
            (plan.encode(0.1 * each, signs, generator) for each in directions[:30]), np.zeros(plan.length, np.uint32)
        )
        for clients, found in bounds.items():
            released = plan.decode(total + plan.noise_of(clients, generator), signs)
            scores = np.stack(directions) @ released
            found.append(attacks.separation(scores[:30], scores[30:]).epsilon(DELTA)[1])
    assert sum(bound > claim for bound in bounds[32]) <= 5
    assert min(bounds[2]) > claim


def test_the_separation_of_few_canaries_by_hand() -> None:
    """The means are 6 and 2, the variance is (2 + 8) / 3 with three degrees of freedom."""
    found = attacks.separation(np.array([5.0, 7.0]), np.array([0.0, 2.0, 4.0]), 0.9)
    deviation = math.sqrt(10 / 3)
    assert found.mu == pytest.approx(4 / deviation)
    least = 4 - scipy.stats.t.ppf(0.95, 3) * deviation * math.sqrt(1 / 2 + 1 / 3)
    assert found.low == pytest.approx(max(0.0, least) / math.sqrt(10 / scipy.stats.chi2.ppf(0.05, 3))) and found.low > 0


def test_equal_scores_prove_nothing() -> None:
    same = np.zeros(200)
    assert attacks.auroc(same, same) == 0.5
    assert attacks.one_run(same, same, 0.0) < 0.3
    assert attacks.true_positives(same, same).rate == 0.0
    with pytest.raises(ValueError, match="all canaries are equal"):
        attacks.separation(same, same)


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_epsilon_and_delta_of_the_gaussian_mechanism_are_inverse(mu: float, delta: float) -> None:
    epsilon = attacks.gaussian_epsilon(mu, delta)
    if epsilon == 0:
        assert attacks.gaussian_delta(mu, 0.0) <= delta
    else:
        assert attacks.gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-4)


def test_delta_of_the_gaussian_mechanism_by_integration() -> None:
    mu, epsilon = 1.3, 0.8
    points = np.linspace(-12, 14, 400_001)
    excess = scipy.stats.norm.pdf(points, mu) - math.exp(epsilon) * scipy.stats.norm.pdf(points)
    assert attacks.gaussian_delta(mu, epsilon) == pytest.approx(np.trapezoid(np.maximum(excess, 0), points), rel=1e-6)


@pytest.mark.parametrize("attack", [attacks.auroc, attacks.true_positives, attacks.separation])
def test_scores_that_cannot_be_judged_are_refused(attack: object) -> None:
    assert callable(attack)
    with pytest.raises(ValueError, match="at least two canaries outside the federation, not 1"):
        attack(np.zeros(3), np.zeros(1))
    with pytest.raises(ValueError, match="canary inside the federation is not finite"):
        attack(np.array([0.0, np.nan]), np.zeros(3))
