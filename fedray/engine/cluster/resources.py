"""The number of client actors and the resources that each reserves: computed once; an error if nodes lack them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedray.core.words import counted
from fedray.engine.settings import EngineSettings

DRIVER_CPUS = 0.01  # that a run leaves free on its node, and that the driver of a trial books
ACTORS_A_GPU = 4
# Memory of an actor with torch, measured with Ray 2.60 and torch 2.14 on Linux (`fedray doctor` measures it again).
ACTOR_BYTES = 640e6
UNIT = 10_000  # Ray counts cores and GPUs in ten-thousandths; whole numbers avoid rounding


@dataclass(frozen=True)
class Node:
    """The resources of one machine. `memory`: bytes for actors, without the object store; None: not known."""

    cpus: float
    gpus: float
    memory: float | None
    driver: bool  # whether the driver runs here


@dataclass(frozen=True)
class Share:
    """The pool: the number of actors, and the cores and GPUs that each reserves.

    `most`: how many actors could work, if nodes join that have room for them; None: no more than there are.
    """

    actors: int
    cpus: float
    gpus: float
    most: int | None = field(default=None, compare=False)


def share(
    settings: EngineSettings,
    nodes: Sequence[Node],
    population: int | None = None,
    each: float = ACTOR_BYTES,
    jobs: int | None = None,
) -> Share:
    """The pool for these nodes. Each actor runs on one node.

    `population`: the number of clients, for `placement: dedicated`; None: not known yet, which gives a pooled share.
    `each`: bytes of memory that an actor needs. `jobs`: the most jobs that a round has at once, which limits
    `actors: auto`; None: not known yet. ValueError: the nodes can never provide the share, so Ray would wait for ever
    or an actor would run out of memory.
    """
    dedicated = settings.placement == "dedicated"
    gpus = _gpus(settings, nodes, jobs)
    left = _left(nodes)
    cpus = None if isinstance(settings.cpus_per_client, str) else _units("cpus_per_client", settings.cpus_per_client)
    if cpus and cpus > max(left):
        there = f"{'Ray' if len(nodes) == 1 else 'the largest node'} has {max(left) / UNIT:g} left"
        raise ValueError(f"engine.cpus_per_client asks for {cpus / UNIT:g} cores an actor, but {there}: lower it")

    def rooms(cpus: int) -> list[int]:
        """The number of actors with `cpus` units each that fit on each node, by cores and GPUs."""
        return [_places(node, units, cpus, gpus) for node, units in zip(nodes, left, strict=True)]

    def places(cpus: int) -> int:
        return sum(rooms(cpus))

    wanted = settings.actors if isinstance(settings.actors, int) else None
    asked = population if dedicated else wanted
    if asked is not None:
        actors = asked
        name = f"engine.placement: dedicated with {actors:,} clients" if dedicated else f"engine.actors={actors}"
        _check_memory(name, actors, nodes, rooms(cpus or 0), dedicated, each)
        _check_places(name, actors, nodes, places, cpus, gpus, dedicated)
    elif gpus or cpus:
        actors = places(cpus or 0)
        if not actors:
            most = max(units for units, room in zip(left, rooms(0), strict=True) if room)
            raise ValueError(
                f"engine.cpus_per_client={(cpus or 0) / UNIT:g} and engine.gpus_per_client={gpus / UNIT:g}: a node "
                f"with such GPUs has {most / UNIT:g} cores left at most: lower cpus_per_client"
            )
    else:
        actors = max(1, sum(math.floor(node.cpus) for node in nodes))
    room = rooms(cpus or 0) if gpus or cpus else [math.ceil(node.cpus) for node in nodes]
    if asked is None and (fit := _fit(nodes, room, each)) is not None:
        if not fit:
            _check_memory("engine.actors=auto", 1, nodes, room, dedicated, each)
        actors = min(actors, fit)
    if asked is None and jobs is not None:
        actors = min(actors, jobs)
    if cpus is None:
        # The largest share with which all actors fit.
        cpus = bisect_left(range(1, max(left) + 1), True, key=lambda units: places(units) < actors)
        cpus = cpus if cpus < UNIT else cpus // UNIT * UNIT
    return Share(actors, cpus / UNIT, gpus / UNIT, jobs if asked is None else None)


def idle(share: Share, nodes: Sequence[Node]) -> tuple[int, int]:
    """The whole cores and GPUs that a pool leaves idle: an actor computes on one core, or on its share of a GPU."""
    cores, gpus = sum(math.floor(node.cpus) for node in nodes), sum(math.floor(node.gpus) for node in nodes)
    if not share.gpus:
        return max(0, cores - share.actors), gpus
    return 0, max(0, gpus - math.ceil(share.actors / math.floor(1 / share.gpus + 1e-9)))


def _units(name: str, value: str | float) -> int:
    """An amount per client in Ray's units."""
    units = round(float(value) * UNIT)
    if units > UNIT and units % UNIT:
        raise ValueError(f"engine.{name} is {value}: above 1 it must be a whole number")
    if abs(units - float(value) * UNIT) > 1e-6:
        near = math.floor(float(value) * UNIT) / UNIT
        raise ValueError(f"engine.{name} is {value}, but Ray counts in steps of {1 / UNIT:g}: write {near:g}")
    return units


def _gpus(settings: EngineSettings, nodes: Sequence[Node], jobs: int | None) -> int:
    """Units of GPU that each actor reserves. Few jobs are spread over all GPUs."""
    most = max((math.floor(node.gpus) for node in nodes), default=0)
    if isinstance(settings.gpus_per_client, str):
        count = sum(math.floor(node.gpus) for node in nodes)
        wanted = settings.actors if isinstance(settings.actors, int) else jobs or ACTORS_A_GPU * count
        return UNIT // max(1, min(ACTORS_A_GPU, -(-wanted // count))) if most else 0
    gpus = _units("gpus_per_client", settings.gpus_per_client)
    if gpus and not most:
        raise ValueError(
            f"engine.gpus_per_client asks for {counted(gpus / UNIT, 'GPU')} an actor, but Ray sees none: set it to 0 "
            "or auto"
        )
    return gpus


def _left(nodes: Sequence[Node]) -> list[int]:
    """Units of cores that each node has left besides the driver's."""
    booked = round(DRIVER_CPUS * UNIT)
    left = [math.floor(node.cpus * UNIT + 1e-6) - booked * node.driver for node in nodes]
    if not nodes or max(left) <= 0:
        cpus = sum(node.cpus for node in nodes)
        raise ValueError(
            f"Ray has {cpus:g} cores in all, but the driver reserves {DRIVER_CPUS:g}: start Ray with cores (--num-cpus)"
        )
    here = next((node.cpus for node in nodes if node.driver), DRIVER_CPUS)
    if here < DRIVER_CPUS:
        raise ValueError(
            f"the node that the driver runs on has {here:g} cores for Ray, but the driver reserves {DRIVER_CPUS:g}: "
            "start Ray there with a core (--num-cpus=1), or start the run on another node"
        )
    return left


def _places(node: Node, left: int, cpus: int, gpus: int) -> int:
    """The number of actors that fit on a node. A fraction of a GPU comes from one GPU.

    Actors that reserve neither cores nor GPUs are not limited.
    """
    bounds = [left // cpus] if cpus else []
    if gpus:
        whole = math.floor(node.gpus)
        bounds.append(whole * (UNIT // gpus))
    return min(bounds, default=2**62)


def _fit(nodes: Sequence[Node], rooms: Sequence[int], each: float) -> int | None:
    """The number of actors whose memory fits on the nodes that have room for them; None: not known."""
    known = [(node.memory, room) for node, room in zip(nodes, rooms, strict=True) if node.memory is not None]
    return None if len(known) < len(nodes) else sum(min(room, int(memory // each)) for memory, room in known)


def _check_memory(
    name: str, actors: int, nodes: Sequence[Node], rooms: Sequence[int], dedicated: bool, each: float
) -> None:
    """Raise ValueError if there is too little memory. `_check_places` reports too few cores or GPUs."""
    fit = _fit(nodes, rooms, each)
    if fit is None or min(actors, sum(rooms)) <= fit:
        return
    known = [node.memory or 0.0 for node, room in zip(nodes, rooms, strict=True) if room]
    if not fit:
        raise ValueError(
            f"{name}: an actor needs about {each / 1e9:,.1f} GB of memory (torch, the model's copies in training, data "
            f"of the largest client), but Ray has {max(known) / 1e9:,.1f} GB on a node at most: free memory there, "
            "choose a smaller model, or a larger machine"
        )
    raise ValueError(
        f"{name}: {actors:,} actors need about {actors * each / 1e9:,.1f} GB of memory "
        f"({each / 1e6:,.0f} MB each, for torch, the model's copies in training, data of the largest client), but Ray "
        f"has {sum(known) / 1e9:,.1f} GB for them, enough for {fit:,}: "
        + (
            "placement: pooled trains any population"
            if dedicated
            else "lower it, or leave it at auto: a few actors train any population"
        )
    )


def _check_places(
    name: str,
    actors: int,
    nodes: Sequence[Node],
    places: Callable[[int], int],
    cpus: int | None,
    gpus: int,
    dedicated: bool,
) -> None:
    cpus = cpus or 0
    if actors <= places(cpus):
        return
    pooled = ", or have a few actors train them with placement: pooled" if dedicated else ""
    if actors > places(0):
        count = sum(math.floor(node.gpus) for node in nodes)
        smaller = UNIT // math.ceil(actors / count) / UNIT
        raise ValueError(
            f"{name} with engine.gpus_per_client={gpus / UNIT:g}: only {counted(places(0), 'actor')} would fit on "
            f"{counted(count, 'GPU')}: lower one of the two (gpus_per_client={smaller:g} would do){pooled}"
        )
    each = f"engine.cpus_per_client={cpus / UNIT:g}" + (f" and gpus_per_client={gpus / UNIT:g}" if gpus else "")
    raise ValueError(
        f"{name} with {each} needs {actors * cpus / UNIT:g} cores, but only {counted(places(cpus), 'actor')} would "
        f"fit beside the driver ({_words(nodes)}): lower one of the two{pooled}"
    )


def _words(nodes: Sequence[Node]) -> str:
    """A description of the nodes with the size of the largest: an actor runs on one node."""
    cpus, gpus = [node.cpus for node in nodes], [node.gpus for node in nodes]
    if len(nodes) == 1:
        return counted(cpus[0], "core") + (f" and {counted(gpus[0], 'GPU')}" if gpus[0] else "")
    most = counted(max(cpus), "core") + (f" and {counted(max(gpus), 'GPU')}" if any(gpus) else "")
    total = f"{len(nodes)} nodes with {counted(sum(cpus), 'core')} in all"
    return f"{total}; a node has {most} at most, and an actor must fit on one node"
