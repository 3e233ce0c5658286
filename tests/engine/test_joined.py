"""Nodes that join are used, those that cannot be used are named, and those that leave are no crash."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fedray.core.types import RunError
from fedray.engine.actors import crew as crews
from fedray.engine.actors.actor import Answer
from fedray.engine.actors.crew import Crew, Start
from fedray.engine.cluster import reservation
from fedray.engine.cluster.reservation import Reserved, grown
from fedray.engine.cluster.resources import Share
from fedray.engine.jobs.deaths import Cause, Death
from tests.engine.test_reservation import Group, room

__all__ = ["room"]


class FakeRay:
    """Actors that answer at once, on nodes named after their slots."""

    def __init__(self) -> None:
        self.killed: list[int] = []
        self.alive = {"node-0", "node-1", "node-2"}

    def get(self, reference: Any) -> Any:
        if isinstance(reference, Exception):
            raise reference
        return reference

    def wait(self, references: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
        return references, []

    def kill(self, handle: Any) -> None:
        self.killed.append(handle.slot)


@pytest.fixture
def ray_(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setattr(crews, "ray", fake)
    monkeypatch.setattr(crews, "is_alive", lambda node: node in fake.alive)
    monkeypatch.setattr(crews, "read_on", lambda node, path: "")
    return fake


def handle(slot: int) -> Any:
    def ping(folder: str | None) -> Answer:
        return Answer(f"node-{slot}", "cpu", 100 + slot, 0, None)

    return SimpleNamespace(slot=slot, ping=SimpleNamespace(remote=ping))


def started(room: Callable[[int, int], int], **options: Any) -> tuple[Crew, list[str]]:
    said: list[str] = []
    return Crew(handle, 2, 1, None, said.append, Start(room=room, **options)), said


def test_actors_start_on_nodes_that_have_joined(ray_: FakeRay) -> None:
    asked: list[tuple[int, int]] = []

    def joined(slot: int, size: int) -> int:
        asked.append((slot, size))
        return 1 if len(asked) == 2 else 0

    crew, _ = started(joined)
    assert crew.grow() == 0 and crew.grow() == 1
    assert asked == [(2, 2), (2, 2)] and crew.size == 3 == crew.slots
    (reference,) = crew.starting
    crew.admit(reference)
    assert [actor.node for actor in crew.actors.values()] == ["node-0", "node-1", "node-2"]
    assert crew.actors[2].joined and not crew.actors[0].joined


def test_a_node_that_cannot_be_used_costs_only_its_actor(ray_: FakeRay) -> None:
    crew, said = started(lambda slot, size: 1)
    crew.grow()
    ((actor, _),) = crew.starting.values()
    crew.refuse(actor, RunError("node 10.0.0.7 has numpy 2.4.1 instead of 2.4.0"))
    assert crew.size == 2 and ray_.killed == [2]
    assert said == ["a node that has joined cannot be used: node 10.0.0.7 has numpy 2.4.1 instead of 2.4.0"]


def test_nodes_that_leave_and_come_back_ten_times_are_no_crash(ray_: FakeRay) -> None:
    """One replacement is allowed, and one crash uses it up."""
    crew, said = started(lambda slot, size: 0)
    for _ in range(10):
        ray_.alive.discard("node-1")
        gone = next(actor for actor in crew.actors.values() if actor.node == "node-1")
        crew.idle.remove(gone.number)
        crew.bury(gone, Death(Cause.CRASH, "its node has left"))
        ray_.alive.add("node-1")
        (reference,) = crew.starting
        crew.admit(reference)
    assert crew.replaced == 0 and len(said) == 10 and said[0].startswith("a node has left with a client actor")
    crew.bury(crew.actors[0], Death(Cause.CRASH, "it crashed"))
    assert crew.replaced == 1
    with pytest.raises(RunError, match="engine.replacements allows no further one"):
        crew.bury(next(a for a in crew.actors.values() if a.node == "node-1"), Death(Cause.CRASH, "again"))


def test_the_room_of_new_nodes_is_reserved_as_far_as_it_goes(room: Callable[..., list[Group]]) -> None:
    removed = room({"CPU": 5.0})
    first = Reserved(Share(4, 1.0, 0.0), Group([], "PACK", "a"), own=True)  # type: ignore[arg-type]
    more, count = grown("/mine", first, 4, wanted=9)
    assert count == 5 and [slot for slot, _ in more.joined] == [4] and not removed
    again, none = grown("/mine", more, 9, wanted=0)
    assert again is more and none == 0
    assert grown("/mine", Reserved(Share(4, 1.0, 0.0)), 4, 9)[1] == 0, "a trial's bundles are Tune's"
    more.release()
    assert len(removed) == 2


def test_each_slot_has_its_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "bundle", lambda group, index: (group, index))
    reserved: Any = Reserved(Share(2, 1.0, 0.0), "first", own=True, joined=((2, "second"), (5, "third")))  # type: ignore[arg-type]
    assert [reserved.bundle(slot) for slot in (0, 1, 2, 4, 5, 6)] == [
        *(("first", 0), ("first", 1), ("second", 0), ("second", 2), ("third", 0), ("third", 1))
    ]
