"""Compare independent noise, which sampling amplifies, with correlated noise, which partly cancels over rounds.

These are the noise of DP-SGD with Poisson cohorts, and that of DP-FTRL's matrix factorisation with cyclic cohorts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedray.core.privacy.accounting import Account, Sampling
from fedray.core.privacy.factorisation import squared_error
from fedray.core.privacy.guarantee import noise_for
from fedray.core.privacy.settings import Correlated, Gaussian, Private


@dataclass(frozen=True)
class NoiseByKind:
    """The noise in the model at an epsilon, of either kind: its root mean square over rounds, in multiples of C.

    It is the noise in a sum of updates; in a mean it is divided by the cohort. None: no noise gives this epsilon.
    """

    epsilon: float
    independent: float | None
    correlated: float | None
    bands: int  # of the correlated noise: the account's, or the default


def noise_by_kind(account: Account, epsilon: float) -> NoiseByKind:
    """Compute both kinds for the federation of an account of Gaussian or correlated noise, with fixed bounds.

    Independent noise has Poisson cohorts and correlated noise cyclic ones, of the same size, so that both guarantees
    are of one client added or removed.
    """
    settings, sampling, rounds = (
        replace(account.settings, epsilon=epsilon, noise=None),
        account.sampling,
        account.rounds,
    )
    independent = settings if isinstance(settings, Gaussian) else Gaussian(delta=settings.delta, epsilon=epsilon)
    correlated = settings if isinstance(settings, Correlated) else Correlated(delta=settings.delta, epsilon=epsilon)
    poisson, cyclic = replace(sampling, kind="poisson"), replace(sampling, kind="cyclic", limit=None)

    def in_sums(kind: Private, cohorts: Sampling, squares: float) -> float | None:
        try:
            return noise_for(kind, cohorts, rounds) * math.sqrt(squares)
        except ValueError:
            return None

    return NoiseByKind(
        epsilon,
        in_sums(independent, poisson, squared_error(1, rounds)),
        in_sums(correlated, cyclic, squared_error(correlated.bands, rounds)),
        correlated.bands,
    )
