"""Independent noise, which takes credit for sampling, against correlated noise, which partly cancels over rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedray.core.privacy.accounting import Account, Sampling
from fedray.core.privacy.factorisation import squared_error
from fedray.core.privacy.guarantee import noise_for
from fedray.core.privacy.settings import Correlated, Gaussian, Private


@dataclass(frozen=True)
class Crossing:
    """The noise in the model at an epsilon, by either kind: its root mean square over rounds, in bounds C.

    That of a sum of updates: a mean has it divided by the cohort. None: no noise gives this epsilon.
    """

    epsilon: float
    independent: float | None
    correlated: float | None


def crossing(account: Account, epsilon: float) -> Crossing:
    """Both kinds in the federation of an account of Gaussian or correlated noise.

    Correlated noise needs cyclic cohorts. Independent noise has the account's own cohorts, or Poisson ones in place of
    cyclic ones.
    """
    settings, sampling, rounds = account.settings, account.sampling, account.rounds
    bands = settings.bands if isinstance(settings, Correlated) else Correlated(delta=settings.delta, noise=1.0).bands
    independent = Gaussian(delta=settings.delta, epsilon=epsilon)
    correlated = Correlated(delta=settings.delta, epsilon=epsilon, bands=bands)
    drawn = replace(sampling, kind="poisson") if sampling.kind == "cyclic" else sampling
    taking_turns = replace(sampling, kind="cyclic", limit=None)

    def in_sums(kind: Private, cohorts: Sampling, squares: float) -> float | None:
        try:
            return noise_for(kind, cohorts, rounds) * math.sqrt(squares)
        except ValueError:
            return None

    return Crossing(
        epsilon,
        in_sums(independent, drawn, squared_error(1, rounds)),
        in_sums(correlated, taking_turns, squared_error(bands, rounds)),
    )
