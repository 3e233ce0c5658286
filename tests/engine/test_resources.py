from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from fedray.engine.cluster.resources import ACTOR_BYTES, DRIVER_CPUS, Node, Share, share
from fedray.engine.driver import session
from fedray.engine.settings import EngineSettings


def machines(*sizes: tuple[float, ...], actors: int | None = None) -> list[Node]:
    """Nodes of (cores, GPUs), the driver on the first. `actors`: how many fit in the memory of each node."""
    memory = None if actors is None else actors * ACTOR_BYTES
    return [Node(size[0], size[1] if len(size) > 1 else 0, memory, index == 0) for index, size in enumerate(sizes)]


def dedicated(**settings: Any) -> EngineSettings:
    return EngineSettings(placement="dedicated", **settings)


def packed(share: Share, nodes: list[Node]) -> int:
    """How many of the share's actors fit if they are placed one by one, node by node and GPU by GPU."""
    count = 0
    for node in nodes:
        cpus, free = node.cpus - DRIVER_CPUS * node.driver, [1.0] * int(node.gpus)
        while count < share.actors and cpus >= share.cpus - 1e-9:
            if 0 < share.gpus <= 1:
                slot = next((index for index, left in enumerate(free) if left >= share.gpus - 1e-9), None)
                if slot is None:
                    break
                free[slot] -= share.gpus
            elif share.gpus:
                if len(free) < share.gpus:
                    break
                del free[: int(share.gpus)]
            cpus -= share.cpus
            count += 1
    return count


@pytest.mark.parametrize(
    ("settings", "cpus", "gpus", "expected"),
    [
        ({}, 4, 0, Share(4, 0.9975, 0)),  # 3.99 / 4, floored to Ray's step
        ({}, 1, 0, Share(1, 0.99, 0)),
        ({}, 0.5, 0, Share(1, 0.49, 0)),
        ({"actors": 2}, 8, 0, Share(2, 3, 0)),
        ({"actors": 64}, 4, 0, Share(64, 0.0623, 0)),
        ({"cpus_per_client": 1.0}, 4, 0, Share(3, 1, 0)),
        ({"cpus_per_client": 0.5}, 4, 0, Share(7, 0.5, 0)),
        ({"cpus_per_client": 0.0}, 4, 0, Share(4, 0, 0)),
        ({}, 16, 1, Share(4, 3, 0.25)),
        ({}, 16, 2, Share(8, 1, 0.25)),
        ({"gpus_per_client": 0.0}, 16, 1, Share(16, 0.9993, 0)),
        ({"gpus_per_client": 1.0}, 16, 2, Share(2, 7, 1)),
        ({"gpus_per_client": 0.6}, 16, 2, Share(2, 7, 0.6)),  # a share is on one GPU: 2 x 0.4 are left over
        ({"gpus_per_client": 0.1}, 16, 1, Share(10, 1, 0.1)),
        ({"gpus_per_client": 0.25, "cpus_per_client": 4.0}, 16, 2, Share(3, 4, 0.25)),
        ({"actors": 3, "cpus_per_client": 1.0, "gpus_per_client": 0.25}, 4, 1, Share(3, 1, 0.25)),
        ({"gpus_per_client": 0.3333}, 4, 1, Share(3, 1, 0.3333)),
    ],
)
def test_shares(settings: dict, cpus: float, gpus: float, expected: Share) -> None:
    found = share(EngineSettings(**settings), machines((cpus, gpus)))
    assert found == expected
    assert packed(found, machines((cpus, gpus))) == found.actors


@pytest.mark.parametrize(
    ("settings", "sizes", "expected"),
    [
        ({}, [(4,), (2,)], Share(6, 0.9975, 0)),  # 4 of 3.99 / 4 next to the driver, 2 of 2 / 2
        ({}, [(2,), (4,)], Share(6, 0.995, 0)),  # the driver's node sets the share: 1.99 / 2
        ({"actors": 3}, [(4,), (2,)], Share(3, 1, 0)),  # 3.99 / 2 = 1.995 and 2 / 1, in whole cores
        ({"actors": 3}, [(4.01,), (2,)], Share(3, 2, 0)),
        ({"actors": 2}, [(8,), (8,)], Share(2, 7, 0)),  # 8 would fit once only: the driver's node has 7.99
        ({"actors": 5}, [(1,), (1,)], Share(5, 0.3333, 0)),  # 3 on the other node: 1 / 3; 2 of 0.99 / 2 here
        ({"cpus_per_client": 2.0}, [(4,), (3,), (1,)], Share(2, 2, 0)),  # 3.99, 3 and 1 hold one, one and none
        ({"cpus_per_client": 0.0}, [(0.5,), (3,)], Share(3, 0, 0)),
        ({}, [(8, 0), (8, 1)], Share(4, 2, 0.25)),  # actors are on the node with the GPU
        ({}, [(4, 1), (8, 2)], Share(12, 0.9975, 0.25)),  # 3.99 / 4; 8 / 8
        ({"actors": 3, "gpus_per_client": 0.5}, [(8, 1), (2, 1)], Share(3, 2, 0.5)),  # two of 3.99 here, one of 2 there
        ({"gpus_per_client": 0.5, "cpus_per_client": 2.0}, [(8, 0), (3, 2)], Share(1, 2, 0.5)),
        ({}, [(4, 0), (0, 1)], Share(4, 0, 0.25)),  # a node with GPUs and no cores: nothing left to book
    ],
)
def test_an_actor_lies_on_one_node(settings: dict, sizes: list, expected: Share) -> None:
    found = share(EngineSettings(**settings), machines(*sizes))
    assert found == expected
    assert packed(found, machines(*sizes)) == found.actors


def test_every_automatic_share_fits_and_a_larger_one_does_not() -> None:
    for actors in range(1, 40):
        nodes = machines((7,), (3,), (13,))
        found = share(EngineSettings(actors=actors), nodes)
        step = 1 if found.cpus >= 1 else 1e-4
        assert packed(found, nodes) == actors
        assert packed(Share(actors, found.cpus + step, 0), nodes) < actors


@pytest.mark.parametrize(
    ("settings", "sizes", "message"),
    [
        ({}, [(0,)], r"Ray has 0 cores in all, but the driver reserves 0\.01: start Ray with cores"),
        (
            {},
            [(0,), (8,)],
            r"the node that the driver runs on has 0 cores for Ray, but the driver reserves 0\.01: start Ray "
            r"there with a core",
        ),
        (
            {"gpus_per_client": 1 / 3},
            [(8, 4)],
            r"engine\.gpus_per_client is 0\.333\d*, but Ray counts in steps of 0\.0001: write 0\.3333",
        ),
        (
            {"gpus_per_client": 0.5},
            [(8,)],
            r"engine\.gpus_per_client asks for 0\.5 GPUs an actor, but Ray sees none: set it to 0 or auto",
        ),
        ({"cpus_per_client": 2.5}, [(8,)], r"engine\.cpus_per_client is 2\.5: above 1 it must be a whole number"),
        (
            {"cpus_per_client": 8.0},
            [(8,)],
            r"engine\.cpus_per_client asks for 8 cores an actor, but Ray has 7\.99 left: lower it",
        ),
        (
            {"cpus_per_client": 9.0},
            [(8,), (8,)],
            r"cpus_per_client asks for 9 cores an actor, but the largest node has 8 left: lower it",
        ),
        (
            {"cpus_per_client": 4.0, "gpus_per_client": 0.25},
            [(8,), (2, 1)],
            r"engine\.cpus_per_client=4 and engine\.gpus_per_client=0\.25: a node with such GPUs has 2 cores "
            r"left at most",
        ),
        (
            {"actors": 5},
            [(8, 1)],
            r"engine\.actors=5 with engine\.gpus_per_client=0\.25: only 4 actors would fit on 1 GPU: lower one of the "
            r"two \(gpus_per_client=0\.2 would do\)",
        ),
        (
            {"actors": 3, "gpus_per_client": 0.6},
            [(8, 2)],
            r"engine\.actors=3 with engine\.gpus_per_client=0\.6: only 2 actors would fit on 2 GPUs",
        ),
        (
            {"actors": 8, "cpus_per_client": 1.0},
            [(8,)],
            r"engine\.actors=8 with engine\.cpus_per_client=1 needs 8 cores, but only 7 actors would fit beside the "
            r"driver \(8 cores\)",
        ),
        (
            {"actors": 4, "cpus_per_client": 3.0},
            [(5,), (5,), (5,)],
            r"engine\.actors=4 .* needs 12 cores, but only 3 actors would fit beside the driver "
            r"\(3 nodes with 15 cores in all; a node has 5 cores at most, and an actor must fit on one node\): "
            r"lower one of the two",
        ),
    ],
)
def test_what_a_cluster_can_never_give_is_refused(settings: dict, sizes: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        share(EngineSettings(**settings), machines(*sizes))


def test_memory_counts_where_actors_can_lie() -> None:
    nodes = [Node(4, 0, 11e9, True), Node(16, 1, 22e9, False), Node(16, 1, 22e9, False)]
    assert share(EngineSettings(), nodes, each=10e9).actors == 4, "two beside each GPU, none on the head"
    with pytest.raises(ValueError, match=r"but Ray has 44\.0 GB for them, enough for 4: lower it"):
        share(EngineSettings(actors=5), nodes, each=10e9)
    nodes = [Node(16, 0, 4e9, True), Node(4, 0, 60e9, False)]
    assert share(EngineSettings(), nodes, each=1e9).actors == 8, "memory bounds the first node, cores the second"


def test_dedicated_has_an_actor_for_every_client() -> None:
    assert share(dedicated(), machines((4,)), 6) == Share(6, 0.665, 0)  # 3.99 / 6
    assert share(dedicated(), machines((4, 1)), 3) == Share(3, 1, 0.25)
    assert share(dedicated(), machines((4,)), None) == share(EngineSettings(), machines((4,)))
    assert share(EngineSettings(), machines((4,)), 1_000_000) == Share(4, 0.9975, 0)


@pytest.mark.parametrize(
    ("settings", "nodes", "population", "message"),
    [
        (
            dedicated(),
            machines((4,), (4,), actors=20),
            41,
            r"dedicated with 41 clients: 41 actors need about 26\.2 GB of memory \(640 MB each, .*\), but "
            r"Ray has 25\.6 GB .* enough for "
            r"40: placement: pooled trains any population",
        ),
        (
            dedicated(),
            machines((4, 1)),
            5,
            r"dedicated with 5 clients with .*gpus_per_client=0\.25: only 4 actors .* on 1 GPU: .* placement: pooled",
        ),
        (
            dedicated(cpus_per_client=1.0),
            machines((4,)),
            4,
            r"dedicated with 4 clients with .* only 3 actors .* placement: pooled",
        ),
        (
            EngineSettings(actors=11),
            machines((4,), actors=10),
            None,
            r"engine\.actors=11: 11 actors need about 7\.0 GB .* lower it, or",
        ),
    ],
)
def test_many_actors_are_refused_in_words(
    settings: EngineSettings, nodes: list[Node], population: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        share(settings, nodes, population)


def test_memory_that_suffices_or_is_not_known_refuses_nothing() -> None:
    assert share(dedicated(), machines((4,), (4,), actors=20), 40).actors == 40
    assert share(EngineSettings(actors=10), machines((4,), actors=10)).actors == 10
    assert share(EngineSettings(), machines((4,), actors=4)).actors == 4


def test_auto_takes_as_many_actors_as_memory_allows() -> None:
    assert share(EngineSettings(), machines((4,), actors=1)) == Share(1, 3, 0)
    assert share(EngineSettings(cpus_per_client=0.5), machines((4,), actors=3)).actors == 3
    assert share(EngineSettings(), machines((4,), actors=4), each=2 * ACTOR_BYTES).actors == 2
    assert share(EngineSettings(), machines((4,), (4,), actors=3)).actors == 6, "three on each node"
    words = r"engine.actors=auto: an actor needs about 3.2 GB .* Ray has 2.6 GB on a node at most: free memory there"
    for settings in (EngineSettings(), EngineSettings(gpus_per_client=0)):
        with pytest.raises(ValueError, match=words):
            share(settings, machines((4,), (4,), actors=4), each=5 * ACTOR_BYTES)
    with pytest.raises(ValueError, match="dedicated with 2 clients: an actor needs about 3.2 GB"):
        share(dedicated(), machines((4,), actors=4), 2, each=5 * ACTOR_BYTES)


def test_memory_that_is_not_known_bounds_nothing() -> None:
    assert share(EngineSettings(), machines((4,)), each=1e15).actors == 4
    assert share(dedicated(), machines((4,)), 1000).actors == 1000


def test_resources_are_those_of_the_nodes_that_live(cluster: None) -> None:
    (node,) = session.resources()
    assert (node.cpus, node.gpus, node.driver) == (4, 0, True)
    assert node.memory is not None and node.memory > 1e9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lanes": 0}, "lanes must be at least 1, not 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"keep": 0}, "keep must be at least 1"),
        ({"actors": "all"}, "actors must be auto or a number, not 'all'"),
        ({"actors": 0}, "actors must be at least 1, not 0"),
        ({"cpus_per_client": "many"}, "cpus_per_client must be auto or a number, not 'many'"),
        ({"gpus_per_client": -1.0}, "gpus_per_client must be at least 0 and at most 1, not -1.0"),
        ({"failures_allowed": 1.1}, "failures_allowed must be at least 0 and at most 1, not 1.1"),
        (
            {"placement": "dedicated", "actors": 4},
            "actors must be auto with placement=dedicated: there every client has an actor",
        ),
        ({"prepare": "never"}, "prepare must be lazy or all, not 'never'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineSettings(**settings)


@pytest.mark.parametrize("asked", ["", "1"])
def test_the_dashboard_starts_where_it_is_asked_for(
    asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("FEDRAY_DASHBOARD", asked)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: given.update(options) or SimpleNamespace(dashboard_url="a:1"))
    session.connect()
    assert given["include_dashboard"] is bool(asked) and given["address"] == "local"
    assert ("Ray's dashboard: http://a:1" in capsys.readouterr().err) is bool(asked)
