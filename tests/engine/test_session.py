"""What the user is told while the driver or its client actors wait for cores."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from fedray.engine import driver as drivers
from fedray.engine import session
from fedray.engine.resources import DRIVER_CPUS, Share
from fedray.engine.settings import EngineSettings

HELD = "others hold Ray's cores (see `ray status`)"
STARTING = "Ray is still starting its process"
SLOW = ": their processes start slowly, or others hold the cores"


@pytest.mark.parametrize(
    ("free", "alive", "words"),
    [
        ({}, [True], HELD),  # Ray leaves out what is used up
        ({"CPU": DRIVER_CPUS / 2}, [True], HELD),
        ({"CPU": DRIVER_CPUS}, [True], STARTING),
        ({"CPU": 3.99}, [True, False], STARTING),
        ({}, [True, True], HELD),
        ({"CPU": 3.99}, [True, True], f"{STARTING}, or others hold the cores of this node (see `ray status`)"),
    ],
)
def test_a_driver_that_has_not_started_waits_for_a_core_or_for_ray(
    free: dict[str, float],
    alive: list[bool],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = iter([([], ["answer"]), (["answer"], [])])  # of ray.wait: the driver has started by the second
    monkeypatch.setattr(ray, "wait", lambda *given, **options: next(answers))
    monkeypatch.setattr(ray, "available_resources", lambda: free)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": one} for one in alive])
    session._await_start(Driver())
    assert capsys.readouterr().err == f"waiting for the run's driver to start: {words}\n"


class Driver:
    """Stands for the driver actor: a call returns a reference at once."""

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *arguments: Any) -> str:
        return "answer"


@pytest.mark.parametrize(
    ("share", "group", "words"),
    [
        (Share(2, 1, 0), None, "2 ask for 1 each of Ray's 2 cores, and 0.99 are free now"),
        (Share(1, 1, 0), None, f"the client actor asks for 1 of Ray's 2 cores, and 0.99 are free now{SLOW}"),
        (Share(2, 0.5, 0), None, f"2 ask for 0.5 each of Ray's 2 cores, and 0.99 are free now{SLOW}"),
        (Share(1, 1, 0), "reserved", None),  # in the bundles of a sweep's trial
    ],
)
@pytest.mark.parametrize("slow", [True, False])
def test_client_actors_that_have_not_started_say_how_many_cores_are_free(
    share: Share, group: str | None, words: str | None, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that holds the cores itself, such as a trial of Tune, would wait without a word."""

    def pool(*arguments: Any) -> SimpleNamespace:
        time.sleep(0.3 * slow)
        return SimpleNamespace(nodes=[])

    monkeypatch.setattr(drivers, "START_SECONDS", 0.1)
    monkeypatch.setattr(drivers, "Pool", pool)
    monkeypatch.setattr(ray, "put", lambda value: None)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True}])
    monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 0.99})
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    plan = SimpleNamespace(engine=EngineSettings())
    assignment = SimpleNamespace(share=share, plan=plan, program=None, assets={}, folder="/nowhere", group=group)
    driver = drivers.Driver(assignment, detached=False)  # type: ignore[arg-type]
    driver._start_pool("run")
    waits = [event.data["text"] for event in driver.events(0, 0.0)][1:]
    said = [f"waiting for client actors to start: {words} (see `ray status`)"]
    assert waits == (said if words is not None and slow else [])


def test_a_file_that_cannot_be_removed_hides_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is lost in a run fails the run's write first, and the removal of driver.json after it."""
    said: list[str] = []

    def gone(name: str) -> None:
        raise OSError("no connection")

    driver = drivers.Driver.__new__(drivers.Driver)
    monkeypatch.setattr(driver, "folder", SimpleNamespace(remove=gone), raising=False)
    monkeypatch.setattr(driver, "_warn", said.append)
    driver._remove("driver.json")
    assert said == ["driver.json could not be removed: no connection"]
