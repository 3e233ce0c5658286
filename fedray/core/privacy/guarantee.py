"""The guarantee of a run: its noise from epsilon, and its epsilon, for the simulated and the `as_if` federation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import scipy

from fedray.core.privacy.accounting import MOST_TIGHT, Account, Sampling
from fedray.core.privacy.settings import Local, Private

LEAST, MOST = 1e-2, 1e4  # noise multipliers between which one is searched for
WITHIN = 3e-4  # tolerance, relative to the wanted epsilon
SLOPE, SECANTS = 1.2, 20  # log(epsilon) falls by about 1.2 as log(noise) grows by 1; the most secant steps


@dataclass(frozen=True)
class Guarantee:
    """Two accounts of one noise: `claimed` is that of `as_if`, `simulated` that of the simulated clients."""

    claimed: Account
    simulated: Account

    @classmethod
    def of(cls, settings: Private, sampling: Sampling, rounds: int) -> Guarantee:
        """The guarantee of a run whose simulation draws cohorts by `sampling`.

        ValueError: no noise gives this epsilon, or the cohorts have no account.
        """
        claimed = _claimed(settings, sampling)
        noise = settings.noise if settings.noise is not None else noise_for(settings, claimed, rounds)
        simulated = noise * scaled(settings, sampling.cohort)
        return cls(Account(settings, noise, claimed, rounds), Account(settings, simulated, sampling, rounds))

    def of_noise(self, noise: float) -> Guarantee:
        """The guarantee with another noise multiplier z of the claimed federation."""
        if noise == self.noise:
            return self
        simulated = replace(self.simulated, noise=self.simulated.noise / self.noise * noise)
        return Guarantee(replace(self.claimed, noise=noise), simulated)

    @property
    def noise(self) -> float:
        """z of the claimed federation."""
        return self.claimed.noise

    def summary(self, rounds: int) -> dict[str, Any]:
        """What the run has spent after these rounds, as results.json has it."""
        found = {"delta": self.claimed.settings.delta, "noise": self.noise, "rounds": rounds}
        found |= {"epsilon": self.claimed.guarantee(rounds), "epsilon_renyi": self.claimed.epsilon(rounds)}
        if self.claimed.sampling != self.simulated.sampling:
            found["epsilon_simulated"] = self.simulated.guarantee(rounds)
        if (one := self.claimed.one_update()) is not None:
            found["epsilon_update"] = one
        return {name: value if math.isfinite(value) else None for name, value in found.items()}

    def words(self) -> str:
        """The guarantee of the whole run, in a sentence."""
        account, settings = self.claimed, self.claimed.settings
        spent = account.guarantee()
        given = "no guarantee" if math.isinf(spent) else f"epsilon {spent:.3g} at delta {settings.delta:g}"
        cohort, sampling = f"{account.sampling.cohort:,.0f} of {account.sampling.population:,}", account.sampling.kind
        one = account.one_update()
        alone = "" if one is None or math.isinf(one) else f" (epsilon {one:.3g} of a single update)"
        return (
            f"privacy: {given} for each client after {account.rounds:,} rounds{alone}, with {cohort} clients a round "
            f"({sampling}) and noise multiplier {self.noise:.4g}; it covers the models, not metrics and tables"
        )


def scaled(settings: Private, cohort: float) -> float:
    """The simulated z over the claimed z at which both cohorts' means have the same noise; 1 without `as_if`.

    The noise in a mean of n clients is z C / n. If clients add the noise themselves, it is z C / sqrt(n).
    """
    share = cohort / (settings.as_if.cohort or cohort)
    return math.sqrt(share) if isinstance(settings, Local) else share


@lru_cache
def noise_for(settings: Private, sampling: Sampling, rounds: int) -> float:
    """z, the least noise multiplier whose guarantee over these rounds is `settings.epsilon`, within 3e-4 of it.

    z is at least `LEAST`. ValueError: no z up to `MOST` gives this epsilon.
    """
    epsilon = settings.epsilon
    assert epsilon is not None

    def above(logarithm: float, spent: Callable[[Account], float], sampling: Sampling) -> float:
        """log(epsilon of this noise / the wanted epsilon), which falls as the noise grows."""
        found = spent(Account(settings, math.exp(logarithm), sampling, rounds))
        return math.log(min(max(found, 1e-9), 1e9) / epsilon)

    # First with the account that costs next to nothing.
    cheap, least, most = (Account.epsilon, replace(sampling, limit=None)), math.log(LEAST), math.log(MOST)
    if above(most, *cheap) > 0:
        raise ValueError(
            f"no noise multiplier up to {MOST:g} gives epsilon {epsilon:g} over {rounds:,} rounds: raise "
            "privacy.epsilon, run fewer rounds, or draw a smaller share of the clients"
        )
    if above(least, *cheap) < 0:
        return LEAST
    rough = scipy.optimize.brentq(above, least, most, cheap, xtol=1e-3)
    spent = Account.guarantee if epsilon < MOST_TIGHT / 2 else Account.epsilon
    return math.exp(_nearby(lambda logarithm: above(logarithm, spent, sampling), rough))


def _nearby(falling: Callable[[float], float], start: float) -> float:
    """The root of a function that is nearly linear around it, by the secant method: each call may take seconds.

    If it is not linear, by bracketing: a small epsilon has a floor, on which the function is flat.
    """
    place, found = start, falling(start)
    step = found / SLOPE
    for _ in range(SECANTS):
        if abs(found) < WITHIN:
            return place
        place, before = place + step, found
        if not math.log(LEAST) < place < math.log(MOST):
            break
        found = falling(place)
        if found == before:
            break
        step *= found / (before - found)
    least, most, step = math.log(LEAST), math.log(MOST), WITHIN / SLOPE
    if falling(least) <= 0:
        return least
    place = float(scipy.optimize.brentq(falling, least, most, xtol=step))
    return place if falling(place) <= WITHIN else place + step  # the root is at a jump: take the side with more noise


def _claimed(settings: Private, sampling: Sampling) -> Sampling:
    as_if = settings.as_if
    if as_if.cohort is None or as_if.population is None:
        return sampling
    limit = None if sampling.limit is None else round(sampling.limit * as_if.cohort / sampling.cohort)
    return replace(sampling, cohort=as_if.cohort, population=as_if.population, limit=limit)
