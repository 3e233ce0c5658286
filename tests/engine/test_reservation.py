"""What a run says while it waits, and how much less it takes, from what Ray would tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import ray

from fedray.engine.cluster import reservation
from fedray.engine.cluster.reservation import Reserved, reserve
from fedray.engine.cluster.resources import Share
from fedray.engine.settings import EngineSettings


class Group:
    """Stands for a placement group, which is made if what it asks for is free."""

    def __init__(self, bundles: list[dict[str, float]], strategy: str, name: str) -> None:
        self.bundles, self.name = bundles, name

    def wait(self, seconds: float) -> bool:
        return all(
            sum(bundle.get(kind, 0.0) for bundle in self.bundles) <= FREE.get(kind, 0.0) + 1e-9
            for kind in ("CPU", "GPU")
        )


FREE: dict[str, float] = {}
ALL = {"CPU": 8.0, "GPU": 2.0}


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Group]]:
    """A function that sets what is free and who holds the rest; returns the list of groups that were removed."""

    def set_up(
        free: dict[str, float], groups: Sequence[dict[str, Any]] = (), drivers: Sequence[str] = ()
    ) -> list[Group]:
        removed: list[Group] = []
        FREE.clear()
        FREE.update(free)
        table = {str(number): group for number, group in enumerate(groups)}
        named = [{"name": f"driver of {place}", "namespace": "fedray"} for place in drivers]
        monkeypatch.setattr(reservation, "placement_group", Group)
        monkeypatch.setattr(reservation, "remove_placement_group", removed.append)
        monkeypatch.setattr(reservation, "placement_group_table", lambda: table)
        monkeypatch.setattr(reservation, "list_named_actors", lambda all_namespaces: named)
        monkeypatch.setattr(ray, "available_resources", lambda: dict(FREE))
        monkeypatch.setattr(ray, "cluster_resources", lambda: ALL)
        return removed

    return set_up


def held(place: str, count: int, state: str = "CREATED", **each: float) -> dict[str, Any]:
    bundles = {number: each for number in range(count)}
    return {"name": f"fedray run {place} 0a1b2c3d" if place else "", "state": state, "bundles": bundles}


def asked(share: Share, checks: int = 9, **settings: Any) -> tuple[Reserved | None, list[str]]:
    """What is reserved (None: the run waits), and what is said, until the user ends the run at its next look."""
    said: list[str] = []
    left = iter(range(checks))

    def check() -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    try:
        return reserve("/mine", share, EngineSettings(**settings), check, said.append), said
    except KeyboardInterrupt:
        return None, said


@pytest.mark.parametrize(
    ("share", "free", "groups", "drivers", "words"),
    [
        (
            Share(4, 1, 0),
            {"CPU": 2.5, "GPU": 2.0},
            [held("/a", 2, CPU=2.0), held("/b", 1, CPU=1.5)],
            ["/a", "/b"],
            "waiting for room for 2 of 4 client actors (1 core each): run /a holds 4 cores; run /b holds 1.5 cores",
        ),
        (
            Share(1, 8, 0),
            {"GPU": 2.0},
            [held("/a", 2, CPU=2.0), held("/a", 2, "REMOVED", CPU=2.0)],
            ["/a"],
            "waiting for room for the client actor (8 cores): run /a holds 4 cores; others hold 4 cores",
        ),
        (
            Share(2, 1, 0.5),
            {"CPU": 6.0},
            [held("/a", 2, CPU=1.0, GPU=1.0), held("/b", 2, "PENDING", CPU=1.0), held("/mine", 2, "PENDING", CPU=1.0)],
            ["/a", "/b", "/mine"],
            "waiting for room for 2 client actors (1 core and 0.5 GPUs each): run /a holds 2 cores and 2 GPUs; "
            "run /b waits too",
        ),
        (
            Share(2, 4, 0),
            {"CPU": 3.98, "GPU": 2.0},
            [held("", 2, CPU=2.01)],
            ["/sweep/0_lr=1/run", "/sweep/1_lr=2/run"],
            "waiting for room for 2 client actors (4 cores each): run /sweep/0_lr=1/run and run /sweep/1_lr=2/run hold "
            "4.02 cores",
        ),
        (
            Share(2, 4, 0),
            {"CPU": 4.0, "GPU": 2.0},
            [held(f"/{name}", 1, CPU=0.8) for name in "abcde"],
            [],
            "waiting for room for 1 of 2 client actors (4 cores each): run /a holds 0.8 cores; run /b holds 0.8 cores; "
            "run /c holds 0.8 cores; 2 more runs hold cores",
        ),
    ],
)
def test_a_run_says_what_it_waits_for_and_who_holds_it(
    room: Callable[..., list[Group]],
    share: Share,
    free: dict[str, float],
    groups: list[dict[str, Any]],
    drivers: list[str],
    words: str,
) -> None:
    removed = room(free, groups, drivers)
    found, said = asked(share, checks=3, actors=share.actors, cpus_per_client=share.cpus)
    assert found is None and said == [words], "once, as long as nothing changes"
    assert len(removed) == 1


@pytest.mark.parametrize(
    ("share", "free", "settings", "expected"),
    [
        (Share(4, 1, 0), {"CPU": 4.0}, {}, Share(4, 1, 0)),
        (Share(4, 1, 0), {"CPU": 3.5}, {}, Share(3, 1, 0)),
        (Share(4, 1, 0), {"CPU": 3.5}, {"actors": 4}, None),
        (Share(4, 1, 0), {"CPU": 0.99}, {}, None),
        (Share(8, 0.9, 0), {"CPU": 2.7}, {}, Share(3, 0.9, 0)),  # 2.7 / 0.9 is below 3 in floats
        (Share(2, 3, 0), {"CPU": 4.0}, {}, Share(2, 1, 0)),  # one thread an actor: as fast
        (Share(2, 3, 0), {"CPU": 4.0}, {"actors": 2}, Share(2, 1, 0)),
        (Share(2, 3, 0), {"CPU": 4.0}, {"cpus_per_client": 3.0}, Share(1, 3, 0)),
        (Share(2, 3, 0), {"CPU": 4.0}, {"cpus_per_client": 3.0, "actors": 2}, None),
        (Share(8, 1, 0.25), {"CPU": 8.0, "GPU": 1.0}, {}, Share(4, 1, 0.25)),
        (Share(8, 1, 0.25), {"CPU": 8.0, "GPU": 0.0}, {}, None),
        (Share(3, 1, 0), {"CPU": 2.0}, {"placement": "dedicated"}, None),  # each client has an actor
    ],
)
def test_less_is_taken_where_settings_are_automatic(
    room: Callable[..., list[Group]],
    share: Share,
    free: dict[str, float],
    settings: dict[str, Any],
    expected: Share | None,
) -> None:
    removed = room(free)
    found, said = asked(share, **settings)
    assert (found and found.share) == expected
    assert len(removed) == (expected != share), "the group of the whole share, or none"
    if expected is None:
        assert said[0].startswith("waiting for ")
    elif expected.actors < share.actors:
        less = f"{expected.actors} of {share.actors} client actors find room beside others; the bits are the same"
        assert said[-1] == less
    elif expected != share:
        assert said[-1] == f"others hold cores: each client actor reserves 1 core, not {share.cpus:g}"


def test_a_group_that_is_made_just_now_is_not_waited_for_in_words(room: Callable[..., list[Group]]) -> None:
    room({"CPU": 0.0}, [held("/mine", 4, CPU=1.0)])
    assert asked(Share(4, 1, 0)) == (None, [])


def test_actors_that_book_nothing_need_no_room(room: Callable[..., list[Group]]) -> None:
    room({})
    assert asked(Share(4, 0, 0)) == (Reserved(Share(4, 0, 0)), [])


def test_room_in_pieces_is_not_enough(room: Callable[..., list[Group]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores are free, but on four nodes: groups of two and more are never made."""
    removed = room({"CPU": 4.0})
    monkeypatch.setattr(Group, "wait", lambda self, seconds: len(self.bundles) == 1)
    found, said = asked(Share(4, 1, 0))
    assert found is not None and found.share == Share(1, 1, 0)
    assert [len(group.bundles) for group in removed] == [3, 4]
    assert said == ["1 of 4 client actors find room beside others; the bits are the same"]
    assert asked(Share(4, 1, 0), actors=4) == (
        None,
        ["waiting for a node with room for 4 client actors (1 core each): others hold 4 cores and 2 GPUs"],
    )


def test_a_core_that_runs_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = held("/a", 2, CPU=1.0), held("/b", 2, CPU=0.75)
    one["bundles_to_node_id"], two["bundles_to_node_id"] = {0: "here", 1: "there"}, {0: "here", 1: "here"}
    monkeypatch.setattr(reservation, "placement_group_table", lambda: {"one": one, "two": two})
    assert reservation.in_the_way("here", 3.0) == "run /a and run /b"
    assert reservation.in_the_way("here", 3.5) == ""
    assert reservation.in_the_way("there", 1.0) == "run /a"


def test_what_is_free_in_words(room: Callable[..., list[Group]]) -> None:
    room({"CPU": 2.0, "GPU": 0.5}, [held("/a", 2, CPU=2.0)])
    free = "2 of 8 cores and 0.5 of 2 GPUs are free"
    assert reservation.standing() == f"{free}; run /a holds 4 cores; others hold 2 cores and 1.5 GPUs"


def test_trials_that_wait(room: Callable[..., list[Group]]) -> None:
    bundles = [{"CPU": 0.01}, {"CPU": 0.99}]

    def trial(state: str) -> dict[str, Any]:
        return {"name": "", "state": state, "bundles": dict(enumerate(bundles))}

    others = [held("/a", 2, CPU=2.0), trial("REMOVED"), held("", 1, CPU=1.0)]
    room(
        {"CPU": 2.0, "GPU": 2.0},
        [*others, trial("CREATED"), trial("PENDING"), trial("PENDING")],
        ["/a", "/sweep/0/run"],
    )
    assert reservation.trials_waiting(bundles) == (2, "1 core each: run /a holds 4 cores; others hold 1 core")
    room({"CPU": 3.0, "GPU": 2.0}, [*others, trial("CREATED")])
    assert reservation.trials_waiting(bundles) == (0, "")
