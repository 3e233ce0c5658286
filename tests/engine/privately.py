"""Options for private runs of the toy, by kind."""

from __future__ import annotations

from typing import Any

from fedray.core.privacy.mechanism import Mechanism
from fedray.core.privacy.settings import ClipSettings, Correlated, Gaussian, Local, Skellam
from fedray.core.strategies import Uniform
from fedray.engine.settings import CohortSettings
from tests.engine.toys import ToyData

ADAPTIVE = ClipSettings(kind="adaptive", norm=5.0, layers="dim", count_noise=4.0)
FIXED = ClipSettings(norm=5.0, layers="uniform")
POISSON = CohortSettings(size=4, sampling="poisson")
CYCLIC = CohortSettings(size=3, sampling="cyclic")
KINDS = {
    "gaussian": (Mechanism(Gaussian(delta=1e-3, noise=0.5, clip=ADAPTIVE), 0.5, 4), POISSON),
    "local": (Mechanism(Local(delta=1e-3, noise=0.5, clip=FIXED), 0.5, 4), POISSON),
    "correlated": (
        Mechanism(Correlated(delta=1e-3, noise=0.5, clip=FIXED, bands=3), 0.5, 3, (1.0, -0.5, -0.125)),
        CYCLIC,
    ),
    "skellam": (Mechanism(Skellam(delta=1e-3, noise=0.5, clip=FIXED), 0.5, 4), CohortSettings(size=4)),
}


def private(kind: str = "gaussian") -> dict[str, Any]:
    mechanism, cohort = KINDS[kind]
    return {"privacy": mechanism, "strategy": Uniform(), "cohort": cohort, "data": ToyData(6)}
