"""The reservations of all trials that run at once fit on the nodes; one that can never fit is refused."""

from __future__ import annotations

import pytest

from fedray.engine.cluster.resources import Node
from fedray.engine.settings import EngineSettings
from fedray.sweep.reserve import group, reserve

LAPTOP = [Node(2, 0, None, True)]
CLUSTER = [Node(16, 4, None, True), Node(16, 4, None, False)]


@pytest.mark.parametrize(
    ("engine", "nodes", "trials", "at_once", "expected"),  # expected: actors per trial, trials at once
    [
        (EngineSettings(), LAPTOP, 5, None, (1, 2)),
        (EngineSettings(), LAPTOP, 1, None, (2, 1)),
        (EngineSettings(), LAPTOP, 5, 1, (2, 1)),
        (EngineSettings(), LAPTOP, 9, 4, (1, 4)),
        (EngineSettings(actors=2), LAPTOP, 5, None, (2, 1)),
        (EngineSettings(actors=8), LAPTOP, 5, None, (8, 1)),
        (EngineSettings(actors=1, cpus_per_client=0.5), LAPTOP, 9, None, (1, 3)),
        (EngineSettings(gpus_per_client=0), CLUSTER, 4, None, (8, 4)),
        (EngineSettings(), CLUSTER, 100, None, (1, 32)),
        (EngineSettings(gpus_per_client=1), CLUSTER, 4, None, (2, 4)),
        (EngineSettings(), [Node(0, 0, None, False), Node(8, 0, None, True)], 4, None, (2, 4)),  # a coreless head node
    ],
)
def test_the_bundles_of_all_trials_fit(
    engine: EngineSettings, nodes: list[Node], trials: int, at_once: int | None, expected: tuple[int, int]
) -> None:
    share, together = reserve(engine, nodes, trials, at_once)
    assert (share.actors, together) == expected
    free = [[node.cpus, node.gpus] for node in nodes]
    for _ in range(together):  # first fit, as Ray may pack in the worst case
        for bundle in group(share).bundles:
            place = next(
                i
                for i, (cpus, gpus) in enumerate(free)
                if cpus + 1e-9 >= bundle["CPU"] and gpus + 1e-9 >= bundle.get("GPU", 0)
            )
            free[place] = [free[place][0] - bundle["CPU"], free[place][1] - bundle.get("GPU", 0)]


def test_dedicated_actors_are_as_many_as_clients() -> None:
    share, together = reserve(EngineSettings(placement="dedicated"), LAPTOP, 3, None, population=6)
    assert (share.actors, together) == (6, 1)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        (EngineSettings(actors=8, cpus_per_client=1), "needs 8 cores"),
        (EngineSettings(cpus_per_client=3), "asks for 3 cores"),
        (EngineSettings(gpus_per_client=0.5), "Ray sees none"),
    ],
)
def test_what_can_never_be_met_is_refused(engine: EngineSettings, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        reserve(engine, LAPTOP, 2)
