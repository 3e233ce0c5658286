"""What the user's process says while it waits for the driver."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from fedray.engine import session
from fedray.engine.resources import DRIVER_CPUS

HELD = "others hold Ray's cores (see `ray status`)"
STARTING = "Ray is still starting its process"


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
