"""How many client actors there are and what each books: decided once, by the driver's side, and refused at once where it cannot be met."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedray.engine.settings import EngineSettings

DRIVER_CPUS = 0.01
ACTORS_A_GPU = 4


@dataclass(frozen=True)
class Share:
    """What the pool is made of."""

    actors: int
    cpus: float
    gpus: float


def share(settings: EngineSettings, cpus: float, gpus: float) -> Share:
    """The pool for what a cluster has in all. A share that it can never give is a ValueError: Ray would wait for it for ever."""
    gpu_share = (1 / ACTORS_A_GPU if gpus else 0.0) if isinstance(settings.gpus_per_client, str) else float(settings.gpus_per_client)
    if gpu_share > 1 and gpu_share != int(gpu_share):
        raise ValueError(f"engine.gpus_per_client is {gpu_share}: above 1 it must be a whole number")
    if gpu_share > gpus:
        raise ValueError(f"engine.gpus_per_client asks for {gpu_share} GPU an actor, but Ray sees {gpus:g} in all: set it to 0 or auto")
    left = cpus - DRIVER_CPUS
    if left <= 0:
        raise ValueError(f"Ray has {cpus:g} cores in all, and the driver books {DRIVER_CPUS:g}: start Ray with cores (--num-cpus)")
    room = math.floor(gpus) * math.floor(1 / gpu_share) if 0 < gpu_share <= 1 else math.floor(gpus / gpu_share) if gpu_share else 0
    fixed = None if isinstance(settings.cpus_per_client, str) else float(settings.cpus_per_client)
    if fixed is not None and fixed > 1 and fixed != int(fixed):
        raise ValueError(f"engine.cpus_per_client is {fixed}: above 1 it must be a whole number")
    if fixed is not None and fixed > left:
        raise ValueError(f"engine.cpus_per_client asks for {fixed:g} cores an actor, but Ray has {left:g} left: lower it")
    if isinstance(settings.actors, int):
        actors = settings.actors
    else:
        actors = max(1, math.floor(cpus) if fixed is None else math.floor(left / fixed) if fixed else math.floor(cpus))
        if gpu_share:
            actors = min(actors, room) if fixed is not None else room
    if gpu_share and actors > room:
        raise ValueError(f"engine.actors={actors} of engine.gpus_per_client={gpu_share:g}: {gpus:g} GPUs hold {room} of them: lower either")
    if fixed is None:
        each = left / actors
        fixed = math.floor(each) if each >= 1 else math.floor(each * 1e4) / 1e4
    elif actors * fixed > left + 1e-9:
        raise ValueError(
            f"engine.actors={actors} of engine.cpus_per_client={fixed:g} need {actors * fixed:g}, but Ray has {left:g} left: lower either"
        )
    return Share(actors, fixed, gpu_share)
