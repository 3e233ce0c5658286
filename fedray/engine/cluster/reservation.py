"""The room of a run on a Ray that others use too: reserved all at once, or waited for in words.

The client actors of a run have one placement group, which Ray reserves as a whole or not at all. So no two runs hold a
half each and wait for the other half, and once a run has its group, no other takes anything from it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util import (
    get_placement_group,
    list_named_actors,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedray.core.words import counted
from fedray.engine.cluster.resources import Share
from fedray.engine.settings import EngineSettings

GROUP = "fedray run"  # the name of a run's group begins so; then come its folder and a number
NAMESPACE, DRIVER = "fedray", "driver of"  # of the drivers' names, which end with the run folder
FIRST_SECONDS = 3.0  # for Ray to reserve the whole group; then the run looks for less, and tells the user
LOOK_SECONDS = 1.0  # between two looks at what is free
LOOKS = 5  # after so many, room that Ray does not reserve for the whole group lies in pieces on several nodes
NAMED = 3  # runs that a message names
NOTHING = {"CPU": 0.0, "GPU": 0.0}
TRACE = 0.005  # cores that count as none


@dataclass(frozen=True)
class Reserved:
    """The bundles of a run's client actors. `first`: the bundle of the first actor. `own`: to be removed by the run."""

    share: Share
    group: PlacementGroup | None = None  # None: the actors reserve nothing
    first: int = 0
    own: bool = False
    joined: tuple[tuple[int, PlacementGroup], ...] = ()  # groups on nodes that joined: (slot of the first actor, group)

    def bundle(self, slot: int) -> Any:
        """The scheduling strategy of the client actor at a place in the pool."""
        for start, group in reversed(self.joined):
            if slot >= start:
                return bundle(group, slot - start)
        return bundle(self.group, self.first + slot)

    def taken(self) -> bool:
        """Whether bundles were lost with a node, and others may hold what the run needs in their place."""
        if self.group is None or not self.own or (mine := placement_group_table(self.group))["state"] == "CREATED":
            return False
        looked = _Looked.now()
        return bool(looked.trials or looked.held.keys() - {_folder(mine["name"])})

    def release(self) -> None:
        """Give the bundles back, which kills the actors in them."""
        for group in (self.group, *(group for _, group in self.joined)):
            if group is not None and self.own:
                remove_placement_group(group)


def bundle(group: PlacementGroup | None, index: int) -> Any:
    """The scheduling strategy that pins an actor to a bundle. Without it, a small actor may take a large bundle."""
    return None if group is None else PlacementGroupSchedulingStrategy(group, index)


def name_of(folder: str) -> str:
    """The name, in `NAMESPACE`, of a run folder's driver (`RunFolder.place`). A cluster has at most one such actor."""
    return f"{DRIVER} {folder}"


def reserve(
    folder: str, share: Share, engine: EngineSettings, check: Callable[[], None], say: Callable[[str], None]
) -> Reserved:
    """Reserve the share, or with `engine.actors: auto` what is free of it; waits while there is no room.

    `folder`: the run folder. `check` raises an error if the user wants the run to end. `say` receives what the run
    waits for.
    """
    if not share.cpus and not share.gpus:
        return Reserved(share)
    whole, seconds, said = _ask(folder, share), FIRST_SECONDS, ""
    looked, still = None, 0  # looks since which nothing has become free or taken
    try:
        while not whole.wait(seconds):
            check()
            seconds, before, looked = LOOK_SECONDS, looked, _Looked.now()
            if before is None:
                continue  # what is free now may be free for a moment
            still = still + 1 if before.room == looked.room else 0
            if folder in looked.held or (looked.fit(share) >= share.actors and still < LOOKS):
                continue  # reserved by now, or within seconds: Ray is slow to see what others have left
            if still and (found := _smaller(folder, share, engine, whole)) is not None:
                remove_placement_group(whole)
                say(_less(found.share, share))
                return found
            if (words := looked.words(folder, share)) != said:
                said = words
                say(words)
        return Reserved(share, whole, own=True)
    except BaseException:
        remove_placement_group(whole)
        raise


def grown(folder: str, reserved: Reserved, slot: int, wanted: int) -> tuple[Reserved, int]:
    """Reserve what is free now for further actors, at most `wanted`, from a slot on; returns for how many."""
    share = reserved.share
    if wanted <= 0 or not reserved.own:
        return reserved, 0
    for actors in _halves(min(wanted, _Looked.now().fit(share))):
        group = _ask(folder, replace(share, actors=actors))
        if group.wait(LOOK_SECONDS):
            return replace(reserved, joined=(*reserved.joined, (slot, group))), actors
        remove_placement_group(group)
    return reserved, 0


def release(folder: str) -> None:
    """Remove the groups of a run folder whose driver was killed: Ray keeps them as long as the driver's job lives."""
    for group in placement_group_table().values():
        if group["state"] != "REMOVED" and _folder(group["name"]) == folder:
            with suppress(ValueError):  # from Ray: removed in the meantime, or of another job, which removes it
                remove_placement_group(get_placement_group(group["name"]))


def in_the_way(node: str, cpus: float) -> str:
    """The fedray runs that leave no core of a node with so many, in words; "" if they leave one."""
    held: dict[str, float] = {}
    for group in placement_group_table().values():
        if group["state"] == "CREATED" and (folder := _folder(group["name"])) is not None:
            here = [at for at, where in group["bundles_to_node_id"].items() if where == node]
            held[folder] = sum(group["bundles"][at].get("CPU", 0.0) for at in here)
    return _names([folder for folder, has in held.items() if has]) if cpus - sum(held.values()) < 1 else ""


def standing() -> str:
    """How many cores and GPUs of Ray are free, and who holds the others, in words."""
    looked = _Looked.now()
    kinds = [(name, what) for name, what in (("CPU", "cores"), ("GPU", "GPUs")) if looked.all.get(name)]
    free = [f"{looked.free.get(name, 0.0):g} of {looked.all[name]:g} {what}" for name, what in kinds]
    return "; ".join([f"{' and '.join(free) or 'no cores'} are free", *looked.holders()])


def trials_waiting(bundles: Sequence[Mapping[str, float]]) -> tuple[int, str]:
    """How many trials of a sweep wait for a group of these bundles, and who holds the room, in words."""
    groups = [group for group in placement_group_table().values() if list(group["bundles"].values()) == list(bundles)]
    states = [group["state"] for group in groups if not group["name"]]  # Tune gives no names
    each = {name: sum(bundle.get(name, 0.0) for bundle in bundles) for name in ("CPU", "GPU")}
    mine = {name: states.count("CREATED") * amount for name, amount in each.items()}
    if not (waiting := states.count("PENDING")):
        return 0, ""
    return waiting, f"{_amount(each)} each: {'; '.join(_Looked.now().holders(mine)) or 'Ray has no room now'}"


def _ask(folder: str, share: Share) -> PlacementGroup:
    one = {"CPU": share.cpus, "GPU": share.gpus}
    bundles = [{name: amount for name, amount in one.items() if amount} for _ in range(share.actors)]
    return placement_group(bundles, strategy="PACK", name=f"{GROUP} {folder} {uuid.uuid4().hex[:8]}")


def _folder(name: str) -> str | None:
    """The run folder in the name of a group; None: not a run's group."""
    return name.removeprefix(f"{GROUP} ").rpartition(" ")[0] if name.startswith(f"{GROUP} ") else None


def _smaller(folder: str, share: Share, engine: EngineSettings, whole: PlacementGroup) -> Reserved | None:
    """Less than the share, if the settings allow it and it is free now. Bits do not depend on it."""
    slim = share if engine.cpus_per_client != "auto" else replace(share, cpus=min(1.0, share.cpus))  # one thread each
    fit = min(share.actors, _Looked.now().fit(slim))
    counts = [share.actors] if fit == share.actors and slim != share else []
    if engine.actors == "auto" and engine.placement == "pooled":
        counts += _halves(min(fit, share.actors - 1))
    for actors in counts:
        less = replace(slim, actors=actors)
        group = _ask(folder, less)
        if group.wait(LOOK_SECONDS):
            return Reserved(less, group, own=True)
        remove_placement_group(group)  # there is room in all, but not on one node, or another run was faster
        if whole.wait(0):
            return None
    return None


def _halves(count: int) -> Iterator[int]:
    while count > 0:
        yield count
        count //= 2


def _less(less: Share, share: Share) -> str:
    if less.actors == share.actors:
        return f"others hold cores: each client actor reserves {_count(less.cpus, 'core')}, not {share.cpus:g}"
    return f"{less.actors} of {share.actors} client actors find room beside others; the bits are the same"


@dataclass(frozen=True)
class _Looked:
    """What Ray has in all and free, and the fedray runs that hold some of it or wait for it."""

    all: dict[str, float]
    free: dict[str, float]
    held: dict[str, dict[str, float]]  # run folder -> resources of its group
    waiting: list[str]  # run folders
    trials: list[str]  # run folders whose driver is in the group of a sweep's trial, which has no name

    @classmethod
    def now(cls) -> _Looked:
        held: dict[str, dict[str, float]] = {}
        waiting: list[str] = []
        gone: list[str] = []
        for group in placement_group_table().values():
            if (folder := _folder(group["name"])) is None:
                continue
            if group["state"] in ("CREATED", "RESCHEDULING"):  # the second: some bundles were lost with a node
                each = group["bundles"].values()
                held[folder] = {name: sum(one.get(name, 0.0) for one in each) for name in ("CPU", "GPU")}
            else:
                (gone if group["state"] == "REMOVED" else waiting).append(folder)
        names = [one["name"] or "" for one in list_named_actors(all_namespaces=True) if one["namespace"] == NAMESPACE]
        drivers = [name.removeprefix(f"{DRIVER} ") for name in names if name.startswith(f"{DRIVER} ")]
        trials = [folder for folder in drivers if folder not in (*held, *waiting, *gone)]
        return cls(ray.cluster_resources(), ray.available_resources(), held, sorted({*waiting} - {*held}), trials)

    @property
    def room(self) -> tuple[float, float]:
        """Cores and GPUs that are free."""
        return round(self.free.get("CPU", 0.0), 4), round(self.free.get("GPU", 0.0), 4)

    def fit(self, share: Share) -> int:
        """How many actors of a share find room, if all nodes were one."""
        wants = {"CPU": share.cpus, "GPU": share.gpus}
        return min(int((self.free.get(name, 0.0) + 1e-6) // each) for name, each in wants.items() if each)

    def words(self, folder: str, share: Share) -> str:
        """What a run waits for, and who holds it."""
        missing, one = share.actors - self.fit(share), share.actors == 1
        what = "the client actor" if one else f"{share.actors} client actors"
        if missing <= 0:
            text = f"waiting for a node with room for {what}"
        elif one or missing == share.actors:
            text = f"waiting for room for {what}"
        else:
            text = f"waiting for room for {missing} of {what}"
        gpus = f" and {_count(share.gpus, 'GPU')}" if share.gpus else ""
        others = [other for other in self.waiting if other != folder]
        also = [f"{_names(others)} {'wait' if len(others) > 1 else 'waits'} too"] if others else []
        each = f"{text} ({_count(share.cpus, 'core')}{gpus}{'' if one else ' each'})"
        return f"{each}: {'; '.join([*self.holders(), *also]) or 'nobody holds it, but Ray has no such room now'}"

    def holders(self, mine: Mapping[str, float] = NOTHING) -> list[str]:
        """Who holds how much besides `mine`, in words."""
        words = [f"run {folder} holds {_amount(has)}" for folder, has in list(self.held.items())[:NAMED]]
        if len(self.held) > NAMED:
            words.append(f"{len(self.held) - NAMED} more runs hold cores")
        rest = {
            name: self.all.get(name, 0.0)
            - self.free.get(name, 0.0)
            - sum(has[name] for has in (*self.held.values(), mine))
            for name in ("CPU", "GPU")
        }
        if max(rest.values()) > TRACE:
            trials = [] if any(mine.values()) else self.trials  # else some of them are those that ask
            who = _names(trials) if trials else "others"
            words.append(f"{who} {'holds' if len(trials) == 1 else 'hold'} {_amount(rest)}")
        return words


def _names(folders: list[str]) -> str:
    shown = [f"run {folder}" for folder in folders[:NAMED]]
    shown += [f"{len(folders) - NAMED} more"] if len(folders) > NAMED else []
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _amount(has: dict[str, float]) -> str:
    parts = [_count(has[name], what) for name, what in (("CPU", "core"), ("GPU", "GPU")) if has[name] > TRACE]
    return " and ".join(parts)


def _count(number: float, what: str) -> str:
    return counted(round(number, 2), what)  # sums of shares are not exact
