"""What a private run spends: epsilon after each round, for its kind of noise and its way of drawing cohorts.

There are two accounts, both computed by dp-accounting. The one by Renyi differential privacy covers everything, and
costs next to nothing per round. The tight one, by privacy loss distributions, covers Poisson cohorts and runs that are
equivalent to one release of Gaussian noise.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from fedray.core.privacy.divergences import Orders, between, mixed, skellam, without_replacement
from fedray.core.privacy.factorisation import sensitivities
from fedray.core.privacy.settings import Correlated, Local, Private, Skellam

MISSING = "epsilon is computed by dp-accounting: pip install 'fedray[privacy]'"
MOST_TIGHT = 100.0  # a larger epsilon protects nobody and has no tight account: its loss distribution is too long


@dataclass(frozen=True)
class Sampling:
    """How the cohort of a round is drawn."""

    kind: str  # a kind of `cohort.sampling`: poisson | uniform | weighted | cyclic
    cohort: float  # clients of a round; poisson: expected, before `limit`
    population: int  # clients of the federation
    limit: int | None = None  # poisson: the most clients of a round

    def __post_init__(self) -> None:
        if not 0 < self.cohort <= self.population:
            raise ValueError(
                f"a cohort of {self.cohort:,} needs a population of at least as many, not {self.population:,}"
            )

    @property
    def rate(self) -> float:
        """The probability that a client is in a round."""
        return self.cohort / self.population

    @property
    def everybody(self) -> bool:
        """Whether each round includes all clients."""
        return self.cohort == self.population and (self.limit is None or self.limit >= self.population)

    @property
    def groups(self) -> int:
        """Cyclic: how many groups take turns."""
        return max(1, math.floor(self.population / self.cohort + 1e-9))  # cohorts of 7 of 30: 4 groups of about 7.5

    @property
    def drawn(self) -> bool:
        """Whether a client is in a round by chance, each with the same probability."""
        return self.kind in ("poisson", "uniform") and not self.everybody

    @property
    def replaces(self) -> bool:
        """Whether the account is for one client replaced by another: drawn cohorts of fixed size have no other.

        Everywhere else it is for one client added or removed, except with Skellam noise, which always replaces.
        """
        return self.kind == "uniform" and self.drawn

    def participations(self, rounds: int, beyond: float) -> int:
        """The rounds that a client is in; for drawn cohorts, a number exceeded with probability at most `beyond`."""
        if self.kind == "cyclic":
            return -(-rounds // self.groups)
        return int(scipy.stats.binom.isf(beyond, rounds, self.rate)) if self.drawn else rounds


@dataclass(frozen=True)
class Account:
    """The epsilon of a run with this noise and these cohorts. ValueError: its cohorts have no account.

    `noise`: z, the standard deviation of the noise as a multiple of a client's bound. The noise is that in the sum of
    updates; correlated: in each draw, before a round's draws are summed; local: in one client's update; skellam: in the
    sum, as a multiple of the bound after rounding. `rounds`: the planned number.

    Sampling makes epsilon smaller if only the clients know who is in a round. Local and correlated noise get no such
    credit. Local: epsilon covers all updates of one client together, each of which may move by 2 C with its data. The
    client is granted `participations` rounds; half of delta is the probability that it is in more.
    """

    settings: Private
    noise: float
    sampling: Sampling
    rounds: int

    def __post_init__(self) -> None:
        if self.sampling.kind == "weighted" and not isinstance(self.settings, Local):
            raise ValueError("weighted cohorts have no account: choose cohort.sampling=poisson")
        if self.sampling.kind == "poisson" and isinstance(self.settings, Skellam):
            raise ValueError("skellam noise has no account for poisson cohorts: choose cohort.sampling=uniform")

    def epsilon(self, rounds: int | None = None) -> float:
        """Epsilon after these rounds (None: all), by Renyi differential privacy."""
        rounds = self.rounds if rounds is None else rounds
        if not rounds or not self.noise:
            return math.inf if rounds else 0.0
        if (alone := self._alone(rounds)) is not None:
            return _epsilon(_orders() / (2 * alone**2), self._delta)
        return _epsilon(self.participations(rounds) * self._one_round, self._delta)

    def tight(self, rounds: int | None = None) -> float | None:
        """Epsilon after these rounds (None: all), by privacy loss distributions; None: there is no such account."""
        rounds = self.rounds if rounds is None else rounds
        if not rounds or not self.noise:
            return self.epsilon(rounds)
        if (alone := self._alone(rounds)) is not None:
            return float(_library().get_epsilon_gaussian(alone, self._delta))
        if isinstance(self.settings, Skellam) or self.sampling.replaces:
            return None
        rough = _epsilon(rounds * self._poisson, self._delta)
        if rough > MOST_TIGHT:
            return None
        # As fine as epsilon needs: the steps round epsilon up by less than 1e-4 of it, and cost half a second or less.
        accountant = _library().pld.PLDAccountant(value_discretization_interval=min(max(rough * 5e-4, 1e-4), 1e-3))
        return float(accountant.compose(self._event(), rounds).get_epsilon(self._delta))

    def guarantee(self, rounds: int | None = None) -> float:
        """The tight epsilon if there is one, otherwise epsilon by Renyi differential privacy."""
        tight = self.tight(rounds)
        return self.epsilon(rounds) if tight is None else tight

    def one_update(self) -> float | None:
        """Local: the epsilon of a client's single update; None: another kind, which does not protect single updates."""
        if not isinstance(self.settings, Local):
            return None
        return float(_library().get_epsilon_gaussian(self.noise / 2, self.settings.delta)) if self.noise else math.inf

    def participations(self, rounds: int | None = None) -> int:
        """The rounds that epsilon grants a client: all of them if cohorts are drawn, unless noise is local."""
        rounds = self.rounds if rounds is None else rounds
        if self.sampling.drawn and not isinstance(self.settings, Local):
            return rounds
        return max(1, self.sampling.participations(rounds, self.settings.delta / 2))

    @property
    def _delta(self) -> float:
        return (
            self.settings.delta / 2 if isinstance(self.settings, Local) and self.sampling.drawn else self.settings.delta
        )

    def _alone(self, rounds: int) -> float | None:
        """The noise of one Gaussian release that reveals as much as all rounds. None: cohorts are drawn, or Skellam."""
        if isinstance(self.settings, Correlated):
            return self.noise / float(self._moved(max(rounds, self.rounds))[rounds - 1])
        if isinstance(self.settings, Local):
            return self.noise / (2 * math.sqrt(self.participations(rounds)))
        if self.sampling.drawn or isinstance(self.settings, Skellam):
            return None
        return self.noise / math.sqrt(self.participations(rounds))

    def _moved(self, rounds: int) -> npt.NDArray[np.float64]:
        assert isinstance(self.settings, Correlated)
        return sensitivities(self.settings.bands, rounds, self.sampling.groups if self.sampling.kind == "cyclic" else 1)

    def _event(self) -> Any:
        """A round, as dp-accounting describes it; neighbours differ by one client added or removed."""
        library, sampling = _library(), self.sampling
        if sampling.limit is None:
            return library.PoissonSampledDpEvent(sampling.rate, library.GaussianDpEvent(self.noise))
        return library.TruncatedSubsampledGaussianDpEvent(
            sampling.population, sampling.rate, sampling.limit, self.noise
        )

    @cached_property
    def _one_round(self) -> Orders:
        """The divergences of a round, including sampling if cohorts are drawn."""
        rate = self.sampling.rate if self.sampling.drawn else 1.0
        if isinstance(self.settings, Skellam):
            # The scale of the whole numbers reveals how many clients there are: a client can only be replaced.
            return between(_orders(), without_replacement(skellam(self.noise), rate))
        if self.sampling.replaces:
            return _replaced(rate, self.noise)
        return self._poisson if self.sampling.limit is None else self._truncated(self.sampling.limit)

    @cached_property
    def _poisson(self) -> Orders:
        """The divergences of a round without a limit."""
        library = _library()
        event = library.PoissonSampledDpEvent(self.sampling.rate, library.GaussianDpEvent(self.noise))
        return _divergences(event, library.NeighboringRelation.ADD_OR_REMOVE_ONE)

    def _truncated(self, limit: int) -> Orders:
        """The divergences of a round with a limit: a client who joins a full cohort takes another's place.

        There are two cases, as in dp-accounting's TruncatedSubsampledGaussianDpEvent (arXiv 2508.15089): the others do
        not fill the cohort, or they do and the client is in it with some probability.
        """
        full = float(scipy.stats.binom.sf(limit - 1, self.sampling.population - 1, self.sampling.rate))
        if not full:
            return self._poisson
        chosen = float(scipy.stats.binom.sf(limit, self.sampling.population, self.sampling.rate))
        replaced = _replaced(chosen * limit / (full * self.sampling.population), self.noise)
        if full >= 1:  # the others always fill the cohort
            return replaced
        powers = _orders() - 1
        logs = np.logaddexp(math.log1p(-full) + powers * self._poisson, math.log(full) + powers * replaced)
        return np.asarray(logs / powers)


def _replaced(rate: float, noise: float) -> Orders:
    """The divergences of Gaussian noise in the sum of a sample of fixed size, for one client replaced by another.

    Another client's update may be as long in the opposite direction, so the sum moves by two bounds. dp-accounting's
    bound is looser than the one for any mechanism where a large share of the clients is drawn.
    """
    library, orders = _library(), _orders()
    event = library.SampledWithoutReplacementDpEvent(1, rate, library.GaussianDpEvent(noise / 2))
    found = _divergences(event, library.NeighboringRelation.REPLACE_ONE)
    return np.minimum(found, mixed(orders, orders * 2**2 / (2 * noise**2), rate))


def _divergences(event: Any, neighbours: Any) -> Orders:
    """The divergences of an event; infinite, which is always a valid bound, where dp-accounting finds none."""
    accountant = _library().rdp.RdpAccountant(neighboring_relation=neighbours)
    absl = logging.getLogger("absl")
    silent, absl.disabled = absl.disabled, True  # it warns about each order without a result
    try:
        with np.errstate(all="ignore"):
            found = accountant.compose(event).rdp
    finally:
        absl.disabled = silent
    return np.where(found >= 0, found, math.inf)


def _epsilon(found: Orders, delta: float) -> float:
    """Epsilon at delta, from the divergences at `_orders`."""
    return float(_library().rdp.compute_epsilon(_orders(), found, delta)[0])


@cache
def _orders() -> Orders:
    return np.asarray(_library().rdp.RdpAccountant().orders, dtype=np.float64)


@cache
def _library() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ModuleNotFoundError as error:
        raise ValueError(MISSING) from error
    return dp_accounting
