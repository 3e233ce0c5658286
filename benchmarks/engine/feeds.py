"""Without a machine of that size: whether default settings feed it, and what a round would take there.

Part of `benchmarks.engine.scale`. `feeds` asks the functions that decide on lanes and actors, and plays a round's lanes
by list scheduling. `paper` computes a round from constants that the benchmark measures and from those in `Assumed`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedray.engine.cluster.resources import Node, idle, share
from fedray.engine.round.cohort import cut
from fedray.engine.settings import EngineSettings

CLUSTERS = {
    "64 cores": [Node(64, 0, None, True)],
    "8 GPUs, 64 cores": [Node(64, 8, None, True)],
    "400 GPUs, 50 nodes of 64 cores": [Node(64, 8, None, number == 0) for number in range(50)],
}
COHORTS = (100, 1_000, 100_000)
SPREAD = 1.0  # standard deviation of the logarithm of a client's cost


def feeds() -> list[dict[str, Any]]:
    """A row for each cluster and cohort, with default settings."""
    return [fed(name, nodes, clients) for name, nodes in CLUSTERS.items() for clients in COHORTS]


def fed(name: str, nodes: Sequence[Node], clients: int) -> dict[str, Any]:
    """The lanes and actors of a cohort on these nodes, and the share of the actors' time that is spent on training."""
    settings = EngineSettings()
    lanes = min(settings.lane_count(clients), clients)
    pool = share(settings, nodes, jobs=lanes)
    costs = dict(zip(map(str, range(clients)), np.random.default_rng(0).lognormal(0.0, SPREAD, clients), strict=True))
    work = [sum(map(costs.__getitem__, lane)) for lane in cut([*costs], lanes, costs.__getitem__)]
    free = [0.0] * pool.actors
    for each in work:
        heapq.heapreplace(free, free[0] + each)
    cores, gpus = idle(pool, nodes)
    return {
        "cluster": name,
        "clients a round": clients,
        "lanes": lanes,
        "actors": pool.actors,
        "GPU of an actor": pool.gpus,
        "idle": f"{gpus} GPUs" if pool.gpus else f"{cores} cores",
        "actors at work (%)": 100 * sum(work) / (pool.actors * max(free)),
    }


@dataclass(frozen=True)
class Assumed:
    """A cluster and its workload, and what nobody measured here."""

    nodes: int = 50
    gpus: int = 8  # of a node
    clients: int = 100_000
    parameters: float = 255e6
    network: float = 1.25e9  # bytes a second of a node: 10 Gbit/s
    store: float = 5e9  # bytes a second into or out of a node's object store, for all its actors
    pcie: float = 12e9  # bytes a second between host and GPU
    client: float = 10.0  # seconds of a GPU for the steps of a client
    fan: int = 8  # lanes whose sums are merged at once
    lane: float = 0.0033  # seconds of the driver for a lane: a round of 100,000 light clients has 8,000 lanes


def paper(cost: Mapping[str, float], given: Assumed | None = None) -> list[dict[str, Any]]:
    """Seconds of a round by phase. `cost`: measured nanoseconds a parameter of each step."""
    a = given or Assumed()
    size, actors = 4 * a.parameters, a.nodes * a.gpus * 4
    lanes = EngineSettings().lane_count(a.clients)
    hops = math.ceil(math.log2(a.nodes))
    add = 1e-9 * cost["fold"] * a.parameters
    own = 1e-9 * cost["all"] * a.parameters  # on one core; four actors share a GPU, each with a core
    here = math.ceil(lanes / a.nodes)  # lanes of a node
    merges = here * (1 + 1 / (a.fan - 1))
    rows = [
        ("broadcast to all nodes", hops * size / a.network, f"{hops} hops of a tree at {a.network / 1e9:g} GB/s"),
        ("broadcast to all GPUs", 4 * size / a.pcie, f"4 actors a GPU at {a.pcie / 1e9:g} GB/s"),
        (
            "training",
            math.ceil(a.clients / (a.nodes * a.gpus)) * a.client,
            f"{a.client:g} s of a GPU for a client's steps",
        ),
        (
            "fedray's part of it on the actors' cores",
            math.ceil(a.clients / actors) * own,
            f"{cost['all']:.2f} ns a parameter and client, measured; on a GPU it is folded there",
        ),
        ("the driver's work on lanes, beside training", a.lane * lanes, f"{1e3 * a.lane:.1f} ms a lane, measured"),
        (
            "lanes' sums into the object store",
            here * 2 * size / a.store,
            f"{here} lanes a node, down from the GPU and in at {a.store / 1e9:g} GB/s together",
        ),
        (
            "merging on the nodes, beside training",
            merges * (size / a.store + add / (4 * a.gpus)),
            f"fan-in {a.fan}, {cost['fold']:.2f} ns a parameter",
        ),
        ("sums between nodes", hops * size / a.network, "one vector of each subtree, side by side"),
        ("root to the driver", size / a.network, "one vector"),
        ("server's step", 8 * add, "FedAdam: eight passes over memory"),
        ("checkpoint, beside the next round", 2 * size / 0.5e9, "parameters and moments at 0.5 GB/s"),
    ]
    return [{"phase": phase, "seconds": seconds, "assumption": why} for phase, seconds, why in rows]
