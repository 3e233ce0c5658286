"""Rounds of the toy under a virtual clock: compared with no clock, by hand, and with the same bits for any actors."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedray.core.compression.settings import TopKUpload
from fedray.core.devices.availability import Anytime, Windows
from fedray.core.devices.clock import Clock
from fedray.core.devices.settings import BufferedClock, ClassDevices, DeviceClass, RoundsClock
from fedray.core.devices.state import ClockState
from fedray.core.devices.table import of_classes
from fedray.core.devices.trips import SECOND, Load
from fedray.core.metrics import Metrics
from fedray.core.strategies import LayerwisePruning
from fedray.core.types import Broadcast, Change, Client, Received, RunError, Server, ServerState, Update
from fedray.engine.driver import session
from fedray.runs.folder import RunFolder
from tests.engine.runs import bits, rows, same
from tests.engine.toys import SIZE, Beside, Toy, ToyData, ToySettings, play, run

pytestmark = pytest.mark.usefixtures("cluster")
SEED = 7  # the seed of the toy's program
DATA = ToyData()


@pytest.fixture(scope="module", autouse=True)
def shipped(cluster: None) -> None:
    session.ship(sys.modules[__name__])


@dataclass(frozen=True)
class EqualData(ToyData):
    """Clients with equal work."""

    def cost(self, client: str) -> float:
        return 1.0


class Quadratic(Toy):
    """Clients go half the way to their point; nothing is random, and the server does not train."""

    def init(self, server: Server) -> ServerState:
        return ServerState(np.zeros(SIZE, np.float32))

    def client_update(self, client: Client, received: Received) -> Update:
        return Update(np.float32(0.5) * (client.data - received.params), {"examples": 2.0}, Metrics(loss=(1.0, 1)))

    def server_train(self, server: Server, received: Received) -> None:  # type: ignore[override]
        return None

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return ServerState(state.params + (0 if change.clients is None else change.clients))


class Backbone(Quadratic):
    """Only the first half of the parameters changes; the rest is sent to a client once."""

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params, {"lr/client": 1.0}, constant=SIZE // 2)

    def client_update(self, client: Client, received: Received) -> Update:
        update = super().client_update(client, received)
        return Update(update.delta[: SIZE // 2], update.report, update.metrics)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        assert change.clients is not None
        return ServerState(np.concatenate([state.params[: SIZE // 2] + change.clients, state.params[SIZE // 2 :]]))


def test_what_never_changes_is_counted_once_for_each_client(tmp_path: Path) -> None:
    """Two of three clients take part per round. A new one also gets the constant half and, to prepare, the 24 bytes of
    the assets, with the first model if this is not the first round.
    """
    play(tmp_path, algorithm=Backbone, rounds=3, data=ToyData(3), cohort=2)
    half, known = 4 * SIZE // 2, [len(RunFolder(tmp_path).load(round).clients) for round in range(4)]
    model, new = half + 8, np.diff(known).tolist()  # with a setting
    assert [row["traffic/down_bytes"] for row in rows(tmp_path)] == [
        2 * model + more * (half + 24 + (model if t else 0)) for t, more in enumerate(new)
    ]
    assert new[0] == 2 and 0 in new


def clock(settings: RoundsClock | BufferedClock, data: ToyData = DATA, spread: float = 0.0, **device: float) -> Clock:
    """A clock over devices of one class. An utterance takes a second."""
    one = DeviceClass(**{"seconds": 1.0, "down": 1e6, "up": 1e6, **device})
    devices = of_classes(ClassDevices({"phone": one}, spread), SEED, data.clients, Anytime())
    return Clock(settings, devices, data.client_ids(), SEED, 6)


def without_clock(folder: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("virtual/")} for row in rows(folder)]


FEDBUFF = BufferedClock(concurrency=6, buffer=2, most=3)
ROUGH: dict[str, Any] = {"spread": 1.0, "lost": 0.2}  # devices
OPTIONS: dict[str, Any] = {"rounds": 6, "upload": TopKUpload(0.2, "int8"), "clock": clock(FEDBUFF, **ROUGH)}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    play(folder)
    return folder


@pytest.fixture(scope="module")
def buffered(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Path:
    folder = tmp_path_factory.mktemp("buffered")
    play(folder, **OPTIONS)
    return folder


@pytest.mark.parametrize(
    "settings",
    [RoundsClock(), BufferedClock(concurrency=6, buffer=6, refill="step")],
    ids=["rounds", "a full buffer"],
)
def test_a_clock_that_waits_for_everybody_changes_no_bit(
    plain: Path, tmp_path: Path, settings: RoundsClock | BufferedClock
) -> None:
    play(tmp_path, clock=clock(settings))
    assert without_clock(tmp_path) == rows(plain)
    assert bits(tmp_path, 4) == bits(plain, 4)


def test_several_actors_and_a_resume_give_the_same_bits(buffered: Path, tmp_path: Path) -> None:
    play(tmp_path, **OPTIONS | {"rounds": 3, "actors": 2})
    assert RunFolder(tmp_path).load(3).models
    play(tmp_path, **OPTIONS | {"actors": 3})
    same(tmp_path, buffered, 6)
    assert RunFolder(tmp_path).rows("trips.jsonl") == RunFolder(buffered).rows("trips.jsonl")
    assert sum(row["virtual/lost"] for row in rows(buffered)) and max(
        row["virtual/staleness"] for row in rows(buffered)
    )


@pytest.mark.long
def test_trips_of_a_round_that_does_not_count_are_played_again(buffered: Path, tmp_path: Path) -> None:
    """A run resumes after a crash between writing a round's rows and its checkpoint."""
    play(tmp_path, **OPTIONS | {"rounds": 4, "checkpoint_every": 3, "evaluation": {"every": 9}})
    RunFolder(tmp_path).checkpoints.prune({0, 3})
    play(tmp_path, **OPTIONS)
    assert RunFolder(tmp_path).rows("trips.jsonl") == RunFolder(buffered).rows("trips.jsonl")


@pytest.mark.nightly
def test_pruning_under_a_buffer_with_a_killed_actor(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 4, "clock": clock(FEDBUFF, **ROUGH), "strategy": LayerwisePruning(0.2)}
    play(tmp_path / "straight", **options)
    trained = {trip["client"] for trip in RunFolder(tmp_path / "straight").rows("trips.jsonl") if trip["used"]}
    deadly = ToySettings(trouble="die once", troubled=tuple(sorted(trained)[:2]), folder=str(tmp_path))
    run(tmp_path / "killed", **options | {"actors": 2}, settings=deadly)
    same(tmp_path / "killed", tmp_path / "straight")


def test_fedbuff_by_hand(tmp_path: Path) -> None:
    """A step adds the sum of s(tau) Delta over the buffer, divided by K. Delta starts from the model tau steps ago."""
    steps, made = 8, clock(FEDBUFF, **ROUGH)
    play(tmp_path, algorithm=Quadratic, rounds=steps, clock=made)
    theta, seen, state = [np.zeros(SIZE, np.float32)], set[int](), made.start()

    def load(client: int, first: bool) -> Load:
        return Load(4 * SIZE + 8 + 24 * first, 4 * SIZE, DATA.cost(made.ids[client]))

    for t in range(steps):
        step, state = made.simulate(state, t, load, seen)
        assert len(step.arrived) == 2
        change = np.zeros(SIZE)
        for trip in step.arrived:
            factor = (1 + t - trip.version) ** -0.5
            change += factor * 0.5 * (DATA.load(made.ids[trip.client]) - theta[trip.version]) / 2
        theta.append(np.asarray(theta[-1] + change, np.float32))
        seen |= {trip.client for trip in step.arrived}
    found = RunFolder(tmp_path).load(steps).state.params
    assert found == pytest.approx(theta[-1], abs=1e-6)
    assert max(row["virtual/staleness_most"] for row in rows(tmp_path)) > 1


def test_staleness_of_twice_as_many_clients_as_the_buffer_holds(tmp_path: Path) -> None:
    """With 2 K equal devices, half of the first trips wait for step 0 to end, and are a step behind in step 1.

    From then on two groups of K take turns, a server's step apart, and each is one step behind.
    """
    server, trip = 0.1, 1 + 8 * (2 * 4 * SIZE + 8) / 1e6  # seconds
    made = clock(BufferedClock(concurrency=6, buffer=3, refill="step", server_seconds=server), EqualData())
    play(tmp_path, clock=made, data=EqualData(), rounds=5, algorithm=Quadratic)
    assert [row["virtual/staleness"] for row in rows(tmp_path)] == [0.0, 1.0, 1.0, 1.0, 1.0]
    expected = [trips * trip + steps * server for trips, steps in ((1, 1), (1, 2), (2, 2), (2, 3), (3, 3))]
    # A client's first trip also transfers theta_0 and the assets.
    assert [3600 * row["virtual/hours"] for row in rows(tmp_path)] == pytest.approx(expected, rel=0.03)
    assert [row["clients/cohort"] for row in rows(tmp_path)] == [3] * 5


def test_a_round_without_a_quorum_changes_nothing_but_the_time(tmp_path: Path) -> None:
    """Nobody meets the deadline, since a trip takes at least a second."""
    play(tmp_path, clock=clock(RoundsClock(deadline=0.5, quorum=0.5)), rounds=2)
    table, folder = rows(tmp_path), RunFolder(tmp_path)
    assert folder.load(2).state.params.tobytes() == folder.load(0).state.params.tobytes()
    assert [(row["virtual/late"], row["clients/ok"], row["clients/dropped"]) for row in table] == [(6, 0, 6)] * 2
    assert [row["lr/client"] for row in table] == [0.5, 0.25], "the same model travels with the rate of its round"
    assert table[-1]["virtual/hours"] == pytest.approx(1 / 3600) and table[-1]["virtual/wasted_share"] == 1.0
    assert all(row["traffic/down_bytes"] and not row["traffic/up_bytes"] for row in table)


def test_who_arrives_and_what_it_costs(tmp_path: Path) -> None:
    """With over-selection, the six fastest of eight clients are trained; all eight get the model and spend energy."""
    play(tmp_path, clock=clock(RoundsClock(over=8 / 6), spread=1.0, watts=3.6, radio=0.0), rounds=2)
    trips, table = RunFolder(tmp_path).rows("trips.jsonl"), rows(tmp_path)
    for number in (1, 2):
        ended = [trip for trip in trips if trip["round"] == number]
        assert [trip["fate"] for trip in ended].count("late") == 2 and sum(trip["used"] for trip in ended) == 6
        assert all(trip["model"] == number - 1 for trip in ended)
    assert [row["clients/cohort"] for row in table] == [8, 8] and [row["clients/ok"] for row in table] == [6, 6]
    assert table[-1]["virtual/energy_wh"] == pytest.approx(sum(trip["compute_s"] for trip in trips) / 1000)
    spent = [trip["compute_s"] + trip["transfer_s"] for trip in trips]
    wasted = [seconds for seconds, trip in zip(spent, trips, strict=True) if not trip["used"]]
    assert table[-1]["virtual/device_hours"] == pytest.approx(sum(spent) / 3600)
    assert table[-1]["virtual/wasted_share"] == pytest.approx(sum(wasted) / sum(spent))
    assert pq.read_table(tmp_path / "trips.parquet").to_pylist() == trips
    assert RunFolder(tmp_path).read_json("results.json")["devices"] == {"phone": ToyData().clients}


def test_the_trip_of_a_client_that_fails_is_in_vain(tmp_path: Path) -> None:
    troubled = tuple(DATA.client_ids()[:4])
    settings = ToySettings(trouble="raise", troubled=troubled)
    play(tmp_path, settings=settings, rounds=2, clock=clock(RoundsClock()), failures_allowed=1.0)
    trips = RunFolder(tmp_path).rows("trips.jsonl")
    assert all(trip["used"] == (trip["client"] not in troubled) for trip in trips)
    assert 0 < sum(trip["used"] for trip in trips) < len(trips) and rows(tmp_path)[-1]["virtual/wasted_share"] > 0


def test_only_the_models_of_clients_under_way_are_kept(buffered: Path) -> None:
    folder = RunFolder(buffered)
    named = [set(folder.load(round).models) for round in folder.saved_rounds()]
    on_disk = {int(path.stem) for path in (buffered / "states").glob("_models*/*.pt")}
    assert on_disk == set().union(*named)
    last = folder.load(6)
    assert set(last.models) == {trip.version for trip in ClockState.of(last.clock).open}
    assert max(6 - version for version in last.models) <= FEDBUFF.most


def test_what_travels_beside_a_late_update_counts_whole(tmp_path: Path) -> None:
    """Staleness scales only delta: a client keeps c_i as it sent it, and c stays their mean (SCAFFOLD)."""
    made = clock(FEDBUFF, spread=1.0)
    play(tmp_path, clock=made, rounds=5, algorithm=Beside)
    assert max(row["virtual/staleness"] for row in rows(tmp_path)) > 0
    steps = 5 * FEDBUFF.buffer / len(made.ids)
    assert RunFolder(tmp_path).load(5).state.extra["count"][0] == pytest.approx(steps)


@pytest.mark.long
def test_a_model_keeps_what_travels_alone(tmp_path: Path) -> None:
    options: dict[str, Any] = {"clock": clock(FEDBUFF, **ROUGH), "algorithm": Backbone}
    play(tmp_path / "run", **options, rounds=3)
    models = RunFolder(tmp_path / "run").load(3).models
    assert models and all(written.bytes < 4 * SIZE for written in models.values())
    play(tmp_path / "run", **options, rounds=5)
    play(tmp_path / "straight", **options, rounds=5)
    same(tmp_path / "run", tmp_path / "straight", 5)


def test_a_lost_model_ends_the_resume_in_words(tmp_path: Path) -> None:
    play(tmp_path, **OPTIONS | {"rounds": 3})
    for path in (tmp_path / "states").glob("_models*/*.pt"):
        path.unlink()
    with pytest.raises(RunError, match="is missing. It is a model that clients train from: put the file back"):
        play(tmp_path, **OPTIONS)


def test_nobody_is_there_for_days(tmp_path: Path) -> None:
    """All devices are available for one minute, on the first day; a round takes two seconds."""
    once = np.zeros(12, np.int64), np.full(12, 60 * SECOND)
    windows = Windows(np.arange(12), np.arange(13), *once)
    made = clock(RoundsClock())
    made = Clock(made.settings, replace(made.devices, availability=windows), made.ids, SEED, 6)
    with pytest.raises(RunError, match="no client is available for seven days.*devices.availability"):
        play(tmp_path, clock=made, rounds=40)
    assert rows(tmp_path)[-1]["virtual/hours"] < 1 / 50
