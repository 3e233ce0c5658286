"""How many client actors a run starts on large machines, and what it says about those that stay idle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fedray.core.algorithm import Algorithm
from fedray.engine.cluster.resources import Node, Share, idle, share
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.experiment import fitted as fitting

GB = 1e9


def run(cohort: int, population: int = 200_000, dev: int = 5_000, server: bool = False, **engine: Any) -> tuple:
    """The parts of a configuration and of a program that the number of actors depends on."""
    algorithm = SimpleNamespace(overrides=lambda hook: server, task=None, server_optimizer=None)
    data = SimpleNamespace(
        client_ids=lambda: range(population), splits=lambda: ["dev"], evaluation=lambda split: range(dev)
    )
    config = SimpleNamespace(
        cohort=CohortSettings(size=cohort),
        engine=EngineSettings(**engine),
        evaluation=EvaluationSettings(),
        clock=None,
        algorithm=SimpleNamespace(settings=SimpleNamespace()),
    )
    return cast(Any, config), cast(Any, SimpleNamespace(algorithm=cast(Algorithm, algorithm), data=data, large=False))


def nodes(count: int, cpus: float, gpus: float = 0.0) -> list[Node]:
    return [Node(cpus, gpus, 200 * GB, index == 0) for index in range(count)]


@pytest.mark.parametrize(
    ("cohort", "machines", "actors", "idle_words"),
    [
        (100, nodes(1, 64), 13, "51 cores stay idle: a cohort of 100 clients is cut into 13 lanes"),
        (1_000, nodes(1, 64), 64, ""),
        (100_000, nodes(1, 64), 64, ""),
        (10, nodes(1, 4), 4, ""),
        (100, nodes(1, 64, 8), 13, "1 GPUs stay idle"),  # two share a GPU
        (1_000, nodes(1, 64, 8), 32, ""),
        (100, nodes(50, 64, 8), 13, "387 GPUs stay idle"),
        (1_000, nodes(50, 64, 8), 125, "275 GPUs stay idle"),
        (100_000, nodes(50, 64, 8), 1_600, ""),
    ],
)
def test_actors_are_no_more_than_can_work(cohort: int, machines: list[Node], actors: int, idle_words: str) -> None:
    config, program = run(cohort)
    found, _ = fitting.pool(config, program, any(node.gpus for node in machines), machines)
    assert found.actors == actors and found.most == fitting.jobs_at_once(config, program)
    fit = share(config.engine, machines).actors
    words = fitting.idle_words(config, program, found, fit, machines)
    assert idle_words in words and bool(idle_words) == bool(words)


def test_the_share_of_actors_at_work_where_the_cohort_is_large_enough() -> None:
    """Lanes of equal cost on 64 cores and on 400 GPUs: with 1,000 clients or more, at least 90 % work."""
    for cohort, machines in ((1_000, nodes(1, 64)), (100_000, nodes(1, 64)), (100_000, nodes(50, 64, 8))):
        config, program = run(cohort)
        found, _ = fitting.pool(config, program, machines[0].gpus > 0, machines)
        lanes = config.engine.lane_count(cohort)
        turns = -(-lanes // found.actors)
        assert lanes / (turns * found.actors) > 0.9 and lanes >= found.actors


@pytest.mark.parametrize(
    ("clients", "settings", "lanes"),
    [
        (1, {}, 8),
        (64, {}, 8),
        (65, {}, 9),
        (100, {}, 13),
        (1_000, {}, 125),
        (100_000, {}, 8000),
        (1_000, {"vectorise": 32}, 32),
        (1_000, {"vectorise": 4}, 125),
        (1_000, {"lanes": 3}, 3),
    ],
)
def test_lanes_follow_from_the_cohort_alone(clients: int, settings: dict, lanes: int) -> None:
    assert EngineSettings(**settings).lane_count(clients) == lanes


@pytest.mark.parametrize(("lanes", "utterances", "shards"), [(8, 5, 8), (125, 100, 8), (125, 640, 20), (13, 9_999, 13)])
def test_shards_follow_from_the_lanes_and_the_split(lanes: int, utterances: int, shards: int) -> None:
    assert EvaluationSettings().shard_count(lanes, utterances) == shards
    assert EvaluationSettings(shards=5).shard_count(lanes, utterances) == 5


def test_a_server_that_trains_and_a_large_dev_set_are_work_too() -> None:
    assert fitting.jobs_at_once(*run(100)) == 13
    assert fitting.jobs_at_once(*run(100, server=True)) == 14
    assert fitting.jobs_at_once(*run(20)) == 8 == fitting.jobs_at_once(*run(4))  # eight shards


def test_idle_cores_and_gpus() -> None:
    assert idle(Share(13, 1.0, 0.0), nodes(1, 64)) == (51, 0)
    assert idle(Share(13, 1.0, 0.5), nodes(1, 64, 8)) == (0, 1)
    assert idle(Share(4, 1.0, 0.25), nodes(2, 8, 1)) == (0, 1)
