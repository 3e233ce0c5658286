from __future__ import annotations

import pytest

from fedray.engine.resources import DRIVER_CPUS, Share, share
from fedray.engine.settings import EngineSettings


@pytest.mark.parametrize(
    ("settings", "cpus", "gpus", "expected"),
    [
        ({}, 4, 0, Share(4, 0.9975, 0)),  # 3.99 / 4, floored to what Ray counts in
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
        ({"gpus_per_client": 2.0}, 16, 5, Share(2, 7, 2)),
        ({"gpus_per_client": 0.6}, 16, 2, Share(2, 7, 0.6)),  # a share lies on one GPU: 2 x 0.4 are left over
        ({"gpus_per_client": 0.1}, 16, 1, Share(10, 1, 0.1)),
        ({"gpus_per_client": 0.25, "cpus_per_client": 4.0}, 16, 2, Share(3, 4, 0.25)),
        ({"actors": 3, "cpus_per_client": 1.0, "gpus_per_client": 0.25}, 4, 1, Share(3, 1, 0.25)),
    ],
)
def test_shares(settings: dict, cpus: float, gpus: float, expected: Share) -> None:
    found = share(EngineSettings(**settings), cpus, gpus)
    assert found == expected
    assert found.actors * found.cpus + DRIVER_CPUS <= cpus + 1e-9 and found.actors * found.gpus <= gpus


@pytest.mark.parametrize(
    ("settings", "cpus", "gpus", "message"),
    [
        ({}, 0, 0, r"Ray has 0 cores in all, and the driver books 0\.01: start Ray with cores"),
        ({"gpus_per_client": 1.5}, 8, 4, r"engine\.gpus_per_client is 1\.5: above 1 it must be a whole number"),
        ({"gpus_per_client": 0.5}, 8, 0, r"engine\.gpus_per_client asks for 0\.5 GPU an actor, but Ray sees 0 in all: set it to 0 or auto"),
        ({"gpus_per_client": 2.0}, 8, 1, r"engine\.gpus_per_client asks for 2\.0 GPU an actor, but Ray sees 1 in all"),
        ({"cpus_per_client": 2.5}, 8, 0, r"engine\.cpus_per_client is 2\.5: above 1 it must be a whole number"),
        ({"cpus_per_client": 8.0}, 8, 0, r"engine\.cpus_per_client asks for 8 cores an actor, but Ray has 7\.99 left: lower it"),
        ({"actors": 5}, 8, 1, r"engine\.actors=5 of engine\.gpus_per_client=0\.25: 1 GPUs hold 4 of them: lower either"),
        ({"actors": 3, "gpus_per_client": 0.6}, 8, 2, r"engine\.actors=3 of engine\.gpus_per_client=0\.6: 2 GPUs hold 2 of them"),
        ({"actors": 8, "cpus_per_client": 1.0}, 8, 0, r"engine\.actors=8 of engine\.cpus_per_client=1 need 8, but Ray has 7\.99 left"),
    ],
)
def test_what_a_cluster_can_never_give_is_refused(settings: dict, cpus: float, gpus: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        share(EngineSettings(**settings), cpus, gpus)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lanes": 0}, "lanes must be at least 1, not 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"keep": 0}, "keep must be at least 1"),
        ({"actors": "all"}, "actors is auto or a number from 1, not 'all'"),
        ({"actors": 0}, "actors is auto or a number from 1, not 0"),
        ({"cpus_per_client": "many"}, "cpus_per_client is auto or a number from 0, not 'many'"),
        ({"gpus_per_client": -1.0}, "gpus_per_client is auto or a number from 0, not -1.0"),
        ({"failures_allowed": 1.1}, "failures_allowed is a share of the cohort from 0 to 1, not 1.1"),
        ({"prepare": "never"}, "prepare is lazy or all, not 'never'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineSettings(**settings)
