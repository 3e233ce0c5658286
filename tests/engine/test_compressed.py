"""Compressed rounds of the toy: by hand, counted to the byte, the same bits for any actors and after a resume."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.compression.codes import Int4, Int8
from fedray.core.compression.links import Link
from fedray.core.compression.settings import HalfUpload, Int8Upload, TopKUpload, Upload
from fedray.core.seeds import numpy_generator
from fedray.core.types import Change, Client, Received, RunError, Server, ServerState, State, Update, Vector
from fedray.engine.driver import session
from fedray.engine.jobs.work import Program, arrive
from fedray.engine.lane.lane import Lane
from fedray.engine.lane.uplink import LOST, Before, Sent, Uplink
from fedray.engine.round.downlink import deliver
from fedray.runs.folder import RunFolder
from tests.engine.runs import first_round, rows, same
from tests.engine.toys import SIZE, Beside, Idle, Toy, ToyData, ToySettings, assignment, play

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module", autouse=True)
def shipped(cluster: None) -> None:
    session.ship(sys.modules[__name__])


class Tensors(Beside):
    """The toy with tensors, and ten numbers that no code rounds."""

    def tensors(self) -> tuple[int, ...]:
        return 300, 400, SIZE - 710


class Cancels(Toy):
    """Clients subtract the model that they received."""

    def init(self, server: Server) -> ServerState:
        return ServerState(numpy_generator("theta_0").standard_normal(SIZE).astype(np.float32))

    def client_update(self, client: Client, received: Received) -> Update:
        return replace(super().client_update(client, received), delta=-received.params)

    def server_train(self, server: Server, received: Received) -> None:  # type: ignore[override]
        return None

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        assert change.clients is not None
        return ServerState(state.params + change.clients)


class Fails(Toy):
    """The first client fails in round 1."""

    def client_update(self, client: Client, received: Received) -> Update:
        if client.id == "client-00" and received.round == 1:
            raise LookupError("no luck")
        return super().client_update(client, received)


SPARSE: dict[str, Any] = {
    "algorithm": Tensors,
    "upload": TopKUpload(values="int8"),
    "download": Int8(),
    "data": ToyData(5),
    "cohort": 4,
    "rounds": 3,
}


def states(folder: Path, round: int) -> dict[str, State]:
    """The client states that a checkpoint names."""
    opened = RunFolder(folder)
    store = assignment(folder).program.states
    found = {name: record.state for name, record in opened.load(round).clients.items()}
    return {name: store.load(name, written) for name, written in found.items() if written is not None}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    play(folder, **SPARSE)
    return folder


def test_several_actors_and_a_resume_give_the_same_bits(straight: Path, tmp_path: Path) -> None:
    play(tmp_path, **SPARSE | {"rounds": 2, "actors": 2})
    play(tmp_path, **SPARSE | {"actors": 2})
    same(tmp_path, straight, 3)
    parts = {"delta": SIZE, "vectors/sum": 10, "vectors/count": 1}
    for state in states(straight, 3).values():
        assert {name: lost.size for name, lost in state[LOST].items()} == parts
        assert state[LOST]["delta"][:990].any() and not state[LOST]["delta"][990:].any()


def test_every_byte_is_counted(straight: Path) -> None:
    """Up: delta and two vectors, each in its code, and two scalars. Down: the same parts, and one setting."""
    up, down = (Link(code, (300, 400, 290)) for code in (SPARSE["upload"].code, SPARSE["download"]))
    table = rows(straight)
    assert up.size(SIZE) == up.code.size((300, 400, 290)) + 40
    sent = sum(map(up.size, (SIZE, 10, 1))) + 16
    received = sum(map(down.size, (SIZE, 10, 1))) + 8
    assert [row["traffic/up_bytes"] for row in table] == [4 * sent] * 3
    prepared = [row["clients/prepared"] for row in table]
    assert table[0]["traffic/down_bytes"] == 4 * received + 4 * 24  # 24: the table in the assets
    assert table[1]["traffic/down_bytes"] == 4 * received + prepared[1] * (received + 24)


@pytest.mark.parametrize(
    "upload",
    [
        Int8Upload(),
        *(pytest.param(one, marks=pytest.mark.long) for one in (Int8Upload(False), HalfUpload(), TopKUpload(0.2))),
    ],
    ids=str,
)
def test_a_round_by_hand(tmp_path: Path, upload: Upload) -> None:
    options: dict[str, Any] = {"upload": upload, "rounds": 1}
    deltas, learnt, theta_0 = first_round(assignment(tmp_path / "by hand", **options))
    play(tmp_path / "run", **options)
    found, link, kept = RunFolder(tmp_path / "run").load(1), Link(upload.code), states(tmp_path / "run", 1)
    arrived = {}
    for name, delta in deltas.items():
        generator = None if upload.feedback else numpy_generator(7, "upload", 0, name)
        arrived[name] = link.decode(link.encode(delta, generator), SIZE)
        assert set(kept[name]) == {"first", "prepared", "rounds", "last"} | ({LOST} if upload.feedback else set())
        if upload.feedback:
            assert np.array_equal(kept[name][LOST]["delta"], delta - arrived[name])
    expected = theta_0 + np.mean(list(arrived.values()), axis=0) + learnt
    assert found.state.params == pytest.approx(expected, abs=1e-6)
    assert rows(tmp_path / "run")[0]["traffic/up_bytes"] == 6 * (link.size(SIZE) + 16)


def test_clients_train_from_the_decoded_model_and_the_server_keeps_the_exact_one(tmp_path: Path) -> None:
    """If clients subtract what they received, theta - Q(theta) is left: the server keeps what the code lost."""
    play(tmp_path, algorithm=Cancels, rounds=1, download=Int4())
    program, folder = assignment(tmp_path, algorithm=Cancels).program, RunFolder(tmp_path)
    theta_0 = folder.load(0).state
    decoded, _ = deliver(program.algorithm.broadcast(theta_0, 0), Int4(), program.algorithm)
    assert np.abs(decoded.params - theta_0.params).max() > 0.1
    assert folder.load(1).state.params == pytest.approx(theta_0.params - decoded.params, abs=1e-6)
    assert rows(tmp_path)[0]["dev/distance"] == pytest.approx(distance(program, folder.load(1).state.params), rel=1e-5)


def distance(program: Program, params: Vector) -> float:
    """The toy's score on dev of the exact model; each part of dev is compared with as many of the first parameters."""
    parts = [program.data.evaluation("dev", shard, 3) for shard in range(3)]
    return sum(float(np.square(part - params[: len(part)]).sum()) for part in parts) / SIZE


def test_a_client_that_fails_keeps_what_was_lost(tmp_path: Path) -> None:
    options: dict[str, Any] = {"upload": Int8Upload(), "data": ToyData(2), "cohort": 2, "failures_allowed": 1.0}
    play(tmp_path, algorithm=Fails, rounds=2, **options)
    named, kept = dict(RunFolder(tmp_path).load(2).files()), states(tmp_path, 2)
    assert [named[name].version for name in ("client-00", "client-01")] == [1, 2]
    assert all(state[LOST]["delta"].any() for state in kept.values())


def test_an_update_that_does_not_count_loses_nothing(tmp_path: Path) -> None:
    idle = ToySettings(troubled=("client-00",))
    play(tmp_path, algorithm=Idle, settings=idle, rounds=1, upload=Int8Upload(), data=ToyData(2), cohort=2)
    assert {name: LOST in state for name, state in states(tmp_path, 1).items()} == {
        "client-00": False,
        "client-01": True,
    }


@pytest.mark.long
@pytest.mark.parametrize("changes", [{"placement": "dedicated"}, {"evaluation": {"personal_final": True}}], ids=str)
def test_other_ways_to_play(straight: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    """An actor per client, which keeps the state in memory, or personal scores do not change the bits."""
    play(tmp_path, **SPARSE, **changes)
    same(tmp_path, straight, 3)


def uplink(tmp_path: Path, upload: Upload, round: int = 0) -> Uplink:
    program = assignment(tmp_path, upload=upload).program
    broadcast = program.algorithm.broadcast(program.algorithm.init(None), round)  # type: ignore[arg-type]
    return Uplink(program, Lane(0, round, ()), arrive(broadcast, round, {}, "cpu"))


def test_what_was_lost_goes_along(tmp_path: Path) -> None:
    link = uplink(tmp_path, TopKUpload(0.1))
    delta, lost = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    lost[2] = 100
    client = link.admit(Client("a", None, 0, {"mine": 1, LOST: {"delta": lost}}))
    assert client.state == {"mine": 1}
    sent = link.send("a", Update(delta, {}))
    assert sent.update.delta.tolist() == [0, 0, 102, 0, 0, 0, 0, 0, 0, 0]
    assert sent.state(None, True) is not None
    state = sent.state({"mine": 2}, True)
    assert state is not None and state["mine"] == 2
    assert state[LOST]["delta"].tolist() == [0, 1, 0, 3, 4, 5, 6, 7, 8, 9]


def test_the_state_of_a_client() -> None:
    lost, new = {"delta": np.ones(1, np.float32)}, {"delta": np.zeros(1, np.float32)}
    before = Before.of({"mine": 1, LOST: lost})
    assert before == Before({"mine": 1}, lost) and Before.of({LOST: lost}) == Before(None, lost)
    assert Before.of(None) == Before() and Before.of({"mine": 1}) == Before({"mine": 1})
    sent = Sent(Update(np.ones(1, np.float32), {}), 4, before, new)
    assert sent.state(None, counts=True) == {"mine": 1, LOST: new}, "the old part stays"
    assert sent.state({"mine": 2}, counts=True) == {"mine": 2, LOST: new}
    assert sent.state(None, counts=False) is None, "nothing is written"
    assert sent.state({"mine": 2}, counts=False) == {"mine": 2, LOST: lost}
    assert replace(sent, lost=None).state({"mine": 2}, counts=True) == {"mine": 2}
    assert replace(sent, lost=None).state(None, counts=True) is None
    assert replace(sent, lost={}).state(None, counts=True) is None, "an update without parameters"


def test_the_reserved_key(tmp_path: Path) -> None:
    link = uplink(tmp_path, HalfUpload())
    link.admit(Client("a", None, 0))
    with pytest.raises(ValueError, match="has the key 'upload/lost', which fedray keeps for itself: rename it"):
        link.send("a", Update(np.ones(1, np.float32), {}, state={LOST: 1}))


def test_what_the_code_cannot_hold(tmp_path: Path) -> None:
    link = uplink(tmp_path, HalfUpload())
    for delta, words in (([1e6], "too large .*: choose another upload"), ([np.nan], "NaN or infinite")):
        link.admit(Client("a", None, 0))
        with pytest.raises(ValueError, match=words):
            link.send("a", Update(np.array(delta, np.float32), {}))
    algorithm = assignment(tmp_path).program.algorithm
    broadcast = algorithm.broadcast(algorithm.init(None), 0)  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"too large .*: choose another download\.kind"):
        deliver(replace(broadcast, params=np.full(SIZE, 1e6, np.float32)), HalfUpload().code, algorithm)
