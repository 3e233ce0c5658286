"""Epsilon equals that of dp-accounting and published ones, falls with noise, and comes back from the noise found."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy

from fedray.core.privacy import accounting
from fedray.core.privacy.accounting import Account, Sampling
from fedray.core.privacy.attacks import gaussian_epsilon
from fedray.core.privacy.guarantee import Guarantee, noise_for
from fedray.core.privacy.noise_by_kind import noise_by_kind
from fedray.core.privacy.settings import AsIfSettings, ClipSettings, Correlated, Gaussian, Local, Private, Skellam

dp = pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: pip install 'fedray[privacy]'")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
GAUSSIAN = Gaussian(delta=1e-6, noise=1.0)
POISSON = Sampling("poisson", 100, 4000)
# Federated speech recognition with privacy (Apple, 2023), tables of epsilon at delta 1e-9:
# noise multiplier, sampled share, rounds, printed epsilon
PUBLISHED = [
    (0.6144, 0.002947, 2034, 7.2),
    (2.048, 0.02947, 2006, 4.5),
    (1.536, 0.02947, 2006, 6.5),
    (0.6144, 0.000295, 3390, 3.7),
    (2.56, 0.02947, 2006, 3.5),
    (0.768, 0.00553, 1991, 5.5),
]


@pytest.mark.parametrize(("noise", "share", "rounds", "epsilon"), PUBLISHED)
def test_published_epsilons(noise: float, share: float, rounds: int, epsilon: float) -> None:
    settings, sampling = Gaussian(delta=1e-9, noise=noise), Sampling("poisson", share * 1e6, 1_000_000)
    account = Account(settings, noise, sampling, rounds)
    assert account.epsilon() == pytest.approx(epsilon, rel=0.04)
    tight = account.tight()
    assert tight is not None and tight < account.epsilon()


def test_the_accounts_are_those_of_dp_accounting() -> None:
    event = dp.PoissonSampledDpEvent(100 / 4000, dp.GaussianDpEvent(0.8))
    account = Account(GAUSSIAN, 0.8, POISSON, 50)
    import dp_accounting.rdp

    theirs = dp_accounting.rdp.RdpAccountant().compose(event, 50).get_epsilon(1e-6)
    assert account.epsilon() == pytest.approx(theirs, rel=1e-6)
    assert account.tight() == pytest.approx(_pld(event, 50), rel=1e-3)
    fixed = dp.SampledWithoutReplacementDpEvent(4000, 100, dp.GaussianDpEvent(0.8 / 2))
    replaced = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    mine = Account(GAUSSIAN, 0.8, replace(POISSON, kind="uniform"), 50)
    assert mine.epsilon() == pytest.approx(replaced.compose(fixed, 50).get_epsilon(1e-6), rel=1e-6)
    assert mine.tight() is None


def test_cohorts_of_fixed_size_cost_more_than_poisson_cohorts() -> None:
    spent = {
        kind: Account(GAUSSIAN, 1.0, replace(POISSON, kind=kind), 100).guarantee() for kind in ("poisson", "uniform")
    }
    assert spent["uniform"] > 2 * spent["poisson"]


def test_whole_numbers_show_how_many_clients_there_are() -> None:
    """Neighbours then differ by a replaced client, which moves the sum by two bounds; Poisson cohorts hide nothing."""
    skellam = Skellam(delta=1e-6, noise=1.0)
    with pytest.raises(ValueError, match="no account for poisson cohorts: choose cohort.sampling=uniform"):
        Account(skellam, 1.0, POISSON, 100)
    everybody = Sampling("uniform", 100, 100)  # Skellam has only integer Renyi orders, which costs 2 %
    assert Account(skellam, 2.0, everybody, 10).epsilon() == pytest.approx(
        Account(GAUSSIAN, 1.0, everybody, 10).epsilon(), rel=0.03
    )


@pytest.mark.parametrize(
    ("settings", "sampling"),
    [
        (GAUSSIAN, POISSON),
        pytest.param(GAUSSIAN, replace(POISSON, limit=120), marks=pytest.mark.long),
        pytest.param(GAUSSIAN, replace(POISSON, kind="uniform"), marks=pytest.mark.long),
        (Correlated(delta=1e-6, noise=1.0), replace(POISSON, kind="cyclic")),
        (Local(delta=1e-6, noise=1.0), POISSON),
        (Skellam(delta=1e-6, noise=1.0), replace(POISSON, kind="uniform")),
    ],
    ids=["poisson", "limit", "uniform", "correlated", "local", "skellam"],
)
def test_epsilon_grows_with_rounds_and_falls_with_noise(settings: Private, sampling: Sampling) -> None:
    over_rounds = [Account(settings, 2.0, sampling, 100).epsilon(rounds) for rounds in (0, 1, 10, 50, 100)]
    assert over_rounds[0] == 0 and over_rounds == sorted(over_rounds)
    over_noise = [Account(settings, noise, sampling, 100).epsilon() for noise in (1.0, 2.0, 4.0)]
    assert over_noise == sorted(over_noise, reverse=True)


@pytest.mark.parametrize("epsilon", [1.0, pytest.param(8.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["gaussian", "correlated", "local", "skellam"])
def test_noise_from_epsilon_gives_this_epsilon(kind: str, epsilon: float) -> None:
    kinds: dict[str, Any] = {"gaussian": Gaussian, "correlated": Correlated, "local": Local, "skellam": Skellam}
    settings = kinds[kind](delta=1e-6, epsilon=epsilon)
    sampling = replace(POISSON, kind={"correlated": "cyclic", "skellam": "uniform"}.get(kind, "poisson"))
    since = time.process_time()
    found = Guarantee.of(settings, sampling, 200)
    seconds = time.process_time() - since
    assert found.claimed.guarantee() == pytest.approx(epsilon, rel=1e-3)
    assert seconds <= 3, f"took {seconds:.1f} s of processor time"


def test_no_noise_is_enough() -> None:
    with pytest.raises(ValueError, match="no noise multiplier up to 10000 gives epsilon 0.0001"):
        Guarantee.of(Gaussian(delta=1e-12, epsilon=1e-4), replace(POISSON, cohort=4000), 100_000)


@pytest.mark.long
def test_a_claimed_federation_has_its_own_epsilon() -> None:
    settings = Gaussian(delta=1e-7, epsilon=8.0, as_if=AsIfSettings(cohort=25_000, population=1_000_000))
    found = Guarantee.of(settings, POISSON, 200)
    assert found.simulated.noise == pytest.approx(found.noise * 100 / 25_000)
    summary = found.summary(200)
    assert summary["epsilon"] == pytest.approx(8, rel=1e-3) and summary["epsilon_simulated"] > 1000
    assert "25,000 of 1,000,000 clients a round" in found.words()


@pytest.mark.long
def test_correlated_noise_wins_where_epsilon_is_large() -> None:
    """For 4,000 clients, 100 a round and 200 rounds: correlated noise wins at epsilon 8, independent noise at 2."""
    account = Account(Gaussian(delta=1e-5, noise=1.0), 1.0, POISSON, 200)
    for epsilon, correlated, independent in ((8.0, 3.94, 6.19), (2.0, 13.1, 10.8)):
        found = noise_by_kind(account, epsilon)
        assert (found.correlated, found.independent) == pytest.approx((correlated, independent), rel=0.02)
    for settings, kind in ((Correlated(delta=1e-5, noise=1.0), "cyclic"), (account.settings, "uniform")):
        assert noise_by_kind(Account(settings, 1.0, replace(POISSON, kind=kind), 200), 2.0) == found


def test_a_single_update_under_local_noise_has_an_epsilon_of_its_own() -> None:
    account = Account(Local(delta=1e-6, noise=8.0), 8.0, POISSON, 200)
    assert account.one_update() == pytest.approx(1.0607, rel=1e-4)
    summary, words = Guarantee(account, account).summary(200), Guarantee(account, account).words()
    assert summary["epsilon_update"] == account.one_update() and "epsilon 1.06 of a single update" in words
    assert Account(GAUSSIAN, 1.0, POISSON, 200).one_update() is None


def test_adaptive_bounds_take_their_share_of_the_noise() -> None:
    from fedray.core.privacy.mechanism import Mechanism

    clip = ClipSettings(kind="adaptive", count_noise=5.0)
    mechanism = Mechanism(replace(GAUSSIAN, clip=clip), 1.0, 100)
    assert mechanism.simulated_noise(1) == pytest.approx((1 - 10**-2) ** -0.5)
    with pytest.raises(ValueError, match="raise privacy.clip.count_noise"):
        mechanism.simulated_noise(100)


def _pld(event: Any, rounds: int) -> float:
    import dp_accounting.pld

    return float(dp_accounting.pld.PLDAccountant().compose(event, rounds).get_epsilon(1e-6))


@pytest.mark.nightly
def test_noise_is_found_where_epsilon_hardly_depends_on_it() -> None:
    """With delta close to the sampling rate, epsilon is 0 over a wide range of noise."""
    settings = Gaussian(epsilon=1.0, delta=9e-3)
    found = noise_for(settings, Sampling("poisson", 1, 100), 1)
    assert Account(settings, found, Sampling("poisson", 1, 100), 1).guarantee() <= 1.001


def test_an_account_follows_the_noise_that_was_used() -> None:
    guarantee = Guarantee.of(Gaussian(epsilon=8.0, delta=1e-5), Sampling("poisson", 10, 1000), 50)
    other = guarantee.of_noise(0.5 * guarantee.noise)
    assert other.claimed.epsilon() > guarantee.claimed.epsilon() and other.simulated.noise == other.noise
    assert guarantee.of_noise(guarantee.noise) is guarantee


def test_local_noise_is_one_release_of_all_updates_of_a_client() -> None:
    """Each update moves by two bounds. For random cohorts, half of delta covers a client that is in more of them."""
    settings, everybody = Local(delta=1e-6, noise=8.0), Sampling("uniform", 100, 100)
    assert Account(settings, 8.0, everybody, 16).guarantee() == pytest.approx(gaussian_epsilon(1.0, 1e-6), rel=1e-6)
    drawn = Account(settings, 8.0, POISSON, 200)
    granted = drawn.participations()
    beyond = scipy.stats.binom.sf([granted - 1, granted], 200, POISSON.rate)
    assert beyond[1] <= 5e-7 < beyond[0]
    assert drawn.guarantee() == pytest.approx(gaussian_epsilon(2 * math.sqrt(granted) / 8, 5e-7), rel=1e-6)


@pytest.mark.parametrize(("population", "granted"), [(400, 3), (250, 5), (100, 9)])
def test_a_client_of_cyclic_cohorts_is_granted_each_round_of_its_group(population: int, granted: int) -> None:
    """Nine rounds of 4, 2 and 1 groups: clients of an incomplete group join the others, and every turn counts."""
    account = Account(GAUSSIAN, 2.0, Sampling("cyclic", 100, population), 9)
    assert account.guarantee() == pytest.approx(gaussian_epsilon(math.sqrt(granted) / 2, 1e-6), rel=1e-6)


def test_a_limit_that_the_others_always_fill() -> None:
    fixed = Account(GAUSSIAN, 1.0, Sampling("uniform", 20, 1000), 10).epsilon()
    found = Account(GAUSSIAN, 1.0, Sampling("poisson", 100, 1000, 20), 10)
    assert found.tight() <= found.epsilon() == pytest.approx(fixed, rel=0.05)  # type: ignore[operator]
    assert math.isfinite(Account(GAUSSIAN, 1.0, Sampling("poisson", 100, 100, 50), 10).epsilon())


@pytest.mark.long
def test_with_a_limit_the_cheap_account_is_not_below_the_tight_one() -> None:
    account = Account(GAUSSIAN, 2.0, replace(POISSON, limit=110), 50)
    tight, fixed = account.tight(), Account(GAUSSIAN, 2.0, replace(POISSON, kind="uniform"), 50).epsilon()
    assert tight is not None and tight <= account.epsilon() <= fixed


@pytest.mark.long
@pytest.mark.parametrize("settings", [Gaussian(delta=1e-6, noise=1.0), Skellam(delta=1e-6, noise=1.0)])
@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3, 0.64, 0.95])
@pytest.mark.parametrize("noise", [0.5, 2.0, 20.0])
def test_a_drawn_cohort_reveals_at_least_one_mixture_and_at_most_a_whole_federation(
    settings: Private, rate: float, noise: float
) -> None:
    """The mixture: with probability `rate` the sum has the client's +1, or another's -1 in its place; all others are 0.

    One client replaced by another moves the sum by two bounds. Skellam: orders between whole ones are interpolated.
    """
    drawn = Account(settings, noise, Sampling("uniform", 100_000 * rate, 100_000), 1)
    sums = np.linspace(-40 * noise, 40 * noise, 80_001)
    one, other, neither = (scipy.stats.norm(mean, noise).logpdf(sums) for mean in (1.0, -1.0, 0.0))
    first, second = (np.logaddexp(math.log(rate) + log, math.log1p(-rate) + neither) for log in (one, other))
    orders = accounting._orders()
    for at in [int(np.argmin(abs(orders - order))) for order in (2.0, 3.5, 8.0)]:
        powers = orders[at] * first + (1 - orders[at]) * second
        exact = (scipy.special.logsumexp(powers) + math.log(sums[1] - sums[0])) / (orders[at] - 1)
        whole = orders[at] * 2**2 / (2 * noise**2)
        assert exact * (1 - 1e-6) <= drawn._one_round[at] <= whole * (1.2 if orders[at] % 1 else 1 + 1e-9)


def test_the_bound_of_skellam_noise_is_loose_where_fedray_privacy_says_so() -> None:
    """A cohort of twice the size has a larger epsilon at the same noise in the mean."""
    small, large = (
        Account(Skellam(delta=1e-6, noise=1.0), 108.6 * rate, Sampling("uniform", 100_000 * rate, 100_000), 60)
        for rate in (0.04, 0.08)
    )
    assert large.epsilon() > 1.2 * small.epsilon()
    cohort = Sampling("uniform", 10, 100)
    assert noise_for(Skellam(delta=1e-5, epsilon=2.0), cohort, 60) < 14
