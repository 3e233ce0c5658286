"""What the user is told while the driver or its client actors do not start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from fedray.core.types import RunError
from fedray.engine.actors import crew
from fedray.engine.actors.crew import Crew, Start
from fedray.engine.actors.stops import Stopped
from fedray.engine.cluster.resources import Node
from fedray.engine.driver import driver as drivers
from fedray.engine.driver import session


def test_a_driver_that_has_not_started_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([([], ["answer"]), (["answer"], [])])  # of ray.wait: the driver has started by the second
    monkeypatch.setattr(ray, "wait", lambda *given, **options: next(answers))
    session._await_start(Driver())
    assert capsys.readouterr().err == "waiting for the run's driver: Ray is still starting its process\n"


class Driver:
    """Stands for the driver actor: a call returns a reference at once."""

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *arguments: Any) -> str:
        return "answer"


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (False, "1 of 1 client actors did not start: their cores and GPUs are reserved, but no process has answered"),
        (True, "1 of 1 client actors wait for room, which was lost with a node: others hold what is left"),
    ],
)
def test_actors_that_do_not_start_end_the_run_unless_others_hold_their_room(
    taken: bool, words: str, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "READY_SECONDS", 0.2)
    monkeypatch.setattr(crew, "LOOK_SECONDS", 0.1)
    said: list[str] = []

    def check() -> None:
        if len(said) == 2:  # it still waits
            raise Stopped

    with pytest.raises(Stopped if taken else RunError) as ended:
        Crew(lambda slot: Never(), 1, 0, None, said.append, Start(taken=lambda: taken, check=check))
    assert words in (said[0] if taken else str(ended.value))


class Never:
    """Stands for an actor that does not start."""

    def __init__(self) -> None:
        self.ping = self

    def remote(self, folder: str | None) -> Any:
        return ray.remote(num_cpus=0, resources={"nowhere": 1})(lambda: None).remote()


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


def test_nothing_to_do_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "connect", lambda: None)
    monkeypatch.setattr(session, "on_this_node", lambda: None)
    monkeypatch.setattr(session, "resources", lambda: [Node(2.0, 0.0, None, driver=True)])
    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "wait", lambda flying, timeout: pytest.fail("nothing flies"))
    assert list(session.parallel(str, [], "items")) == []


def test_a_machine_without_a_core_for_ray_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "connect", lambda: None)
    monkeypatch.setattr(session, "on_this_node", lambda: None)
    monkeypatch.setattr(session, "resources", lambda: [Node(0.0, 0.0, None, driver=True)])
    with pytest.raises(ValueError, match="items: Ray has no core of this machine"):
        list(session.parallel(str, [1], "items"))
