"""Ten-line algorithms on numbers, to test the engine without speech."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedray.core.algorithm import Algorithm, Parts
from fedray.core.attackers import NoAttack
from fedray.core.compression.codes import Float32
from fedray.core.compression.settings import NoUpload
from fedray.core.metrics import Metrics
from fedray.core.privacy.audits import NoAudit
from fedray.core.seeds import numpy_generator
from fedray.core.strategies import ByExamples, LayerwisePruning
from fedray.core.types import (
    NOTHING,
    Broadcast,
    Change,
    Client,
    Evaluation,
    Layer,
    Received,
    Server,
    ServerState,
    State,
    Update,
    Vector,
)
from fedray.engine.cluster.resources import Share
from fedray.engine.driver import session
from fedray.engine.driver.driver import Assignment
from fedray.engine.jobs.work import Program
from fedray.engine.round.plan import Plan
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.runs.folder import RunFolder
from tests.engine import in_process

SIZE = 1000


@dataclass(frozen=True)
class ToyData:
    """Each client has its own point, which it wants the parameters to reach."""

    clients: int = 12

    def client_ids(self) -> list[str]:
        return [f"client-{i:02d}" for i in range(self.clients)]

    def cost(self, client: str) -> float:
        return 1.0 + int(client[-2:]) % 3

    def load(self, client: str) -> np.ndarray:
        return numpy_generator("toy", client).standard_normal(SIZE).astype(np.float32)

    def server(self) -> np.ndarray:
        return self.load("client-00")

    def client_part(self, client: str, split: str) -> None:
        return None

    def splits(self) -> list[str]:
        return ["dev", "test"]

    def evaluation(self, split: str, index: int = 0, count: int = 1) -> np.ndarray:
        return numpy_generator("toy", split).standard_normal(SIZE).astype(np.float32)[index::count]


@dataclass(frozen=True)
class ToySettings:
    lr: float = 0.5
    trouble: str = ""  # raise | nan | infinite loss | die once | die | own
    troubled: tuple[str, ...] = ()
    seconds: float = 0.0  # how long a client takes
    folder: str = ""  # where inits are counted and deaths are recorded


class Toy(Algorithm):
    """Clients step towards their point, with noise from the global generators; their states count their rounds."""

    Settings = ToySettings
    settings: ToySettings
    best = ("dev/distance", "min")

    def init(self, server: Server) -> ServerState:
        if self.settings.folder:
            with (Path(self.settings.folder) / "inits").open("a") as file:
                file.write("x")
        return ServerState(np.zeros(SIZE, np.float32), {"rounds": 0})

    def client_prepare(self, client: Client, received: Received) -> State:
        return {"first": received.params[:3].copy(), "prepared": torch.rand(1).item(), "rounds": 0}

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params, {"lr/client": self.settings.lr / (1 + round)})

    def client_update(self, client: Client, received: Received) -> Update:
        time.sleep(self.settings.seconds)
        if client.id in self.settings.troubled:
            self.make_trouble(client, received)
        assert client.state is not None and received.assets["table"].sum() == 3
        noise = torch.randn(SIZE).numpy() + np.random.standard_normal(SIZE).astype(np.float32)
        delta = received.settings["lr/client"] * (client.data - received.params + 0.1 * noise)
        delta = np.asarray(delta, np.float32)
        if client.id in self.settings.troubled and self.settings.trouble == "nan":
            delta[7] = np.nan
        state = {**client.state, "rounds": client.state["rounds"] + 1, "last": delta[:5]}
        loss = float(np.abs(delta).mean())
        if client.id in self.settings.troubled and self.settings.trouble == "infinite loss":
            loss = math.inf
        return Update(delta, {"examples": 2.0, "loss": loss}, Metrics(loss=(loss, 1)), state)

    def make_trouble(self, client: Client, received: Received) -> None:
        if self.settings.trouble == "raise":
            raise LookupError(f"no luck for {client.id}")
        dead = Path(self.settings.folder) / f"dead-{client.id}-{received.round}"
        if self.settings.trouble == "die" or (self.settings.trouble == "die once" and not dead.exists()):
            dead.touch()
            os._exit(1)

    def server_train(self, server: Server, received: Received) -> Update:
        delta = np.asarray(0.01 * (server.data - received.params) + 0.001 * torch.randn(SIZE).numpy(), np.float32)
        return Update(delta, {"examples": 1.0})

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        params = state.params + (0 if change.clients is None else change.clients)
        return ServerState(params + change.server, {"rounds": state.extra["rounds"] + 1})

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, np.ndarray], final: bool
    ) -> dict[str, Evaluation]:
        if client.id in self.settings.troubled and self.settings.trouble == "own":
            raise LookupError(f"no model of {client.id}")
        assert client.state is not None
        noise = torch.rand(1).item()
        return {
            split: Evaluation(
                Metrics(
                    distance=(float(client.state["last"].sum() + wanted.sum()) + noise, 1),
                    rounds=(client.state["rounds"], 1),
                ),
                [{"item": split, "noise": noise}] if final else [],
            )
            for split, wanted in data.items()
        }

    def layers(self) -> tuple[Layer, ...]:
        return (
            Layer("first", 0, 300),
            Layer("second", 300, 700),
            Layer("first", 700, SIZE),
        )  # a layer may consist of two stretches

    def assets(self, data: Any) -> dict[str, Any]:
        return {"table": np.ones(3)}

    def evaluate(self, data: np.ndarray, received: Received, final: bool) -> Evaluation:
        metrics = Metrics(distance=(float(np.square(data - received.params[: len(data)]).sum()), len(data)))
        return Evaluation(metrics, [{"item": i} for i in range(2)] if final else [])


class Idle(Toy):
    """The troubled clients report that they trained on no examples."""

    def client_update(self, client: Client, received: Received) -> Update:
        update = super().client_update(client, received)
        idle = client.id in self.settings.troubled
        return replace(update, report=update.report | {"examples": 0.0}) if idle else update


class Beside(Toy):
    """The toy with two vectors that travel both ways: the sum of what clients sent, and how many clients sent
    something.
    """

    def init(self, server: Server) -> ServerState:
        return ServerState(
            np.zeros(SIZE, np.float32), {"rounds": 0, "sum": np.zeros(10, np.float32), "count": np.zeros(1, np.float32)}
        )

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        vectors = {"sum": state.extra["sum"], "count": state.extra["count"]}
        return Broadcast(state.params, {"lr/client": self.settings.lr / (1 + round)}, vectors=vectors)

    def client_update(self, client: Client, received: Received) -> Update:
        assert not any(vector.flags.writeable for vector in received.vectors.values())
        update = super().client_update(client, received)
        sent = {"sum": client.data[:10] + 0.1 * received.vectors["sum"], "count": np.ones(1, np.float32)}
        return replace(update, vectors=sent)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        if not change.answered:
            assert change.vectors == {}
            return state
        after = super().server_update(state, change, round)
        share = np.float32(change.answered / change.population)
        vectors = {name: state.extra[name] + share * change.vectors[name] for name in ("sum", "count")}
        return ServerState(after.params, after.extra | vectors)


class Silent(Toy):
    """Clients send no parameters: only vectors, or not even those."""

    def client_update(self, client: Client, received: Received) -> Update:
        update = super().client_update(client, received)
        vectors = {"last": update.delta[:5]} if self.settings.trouble == "vectors" else {}
        return replace(update, delta=NOTHING, vectors=vectors)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        assert change.clients is not None and change.clients.shape == (0,)
        found = change.vectors.get("last", NOTHING)
        assert found.shape == ((5,) if self.settings.trouble == "vectors" else (0,))
        return ServerState(state.params, {"rounds": round + 1})


@dataclass(frozen=True)
class DeadlyPruning(LayerwisePruning):
    """Kills its actor once between the phases, when a lane's updates are held and one of them is probed."""

    folder: str = ""

    def probe(self, delta: Vector, mean: Vector, layers: Sequence[Layer]) -> Mapping[str, float]:
        dead = Path(self.folder) / "dead-between"
        if not dead.exists():
            dead.touch()
            os._exit(1)
        return super().probe(delta, mean, layers)


def assignment(
    folder: Path | str, rounds: int = 4, actors: int = 1, settings: ToySettings | None = None, **changes: Any
) -> Assignment:
    data, cohort, cpus = changes.pop("data", ToyData()), changes.pop("cohort", 6), changes.pop("cpus", 0.5)
    privacy, clock = changes.pop("privacy", None), changes.pop("clock", None)
    audit, most = changes.pop("audit", NoAudit()), changes.pop("most", None)
    attack = changes.pop("attack", NoAttack())
    codes = changes.pop("upload", NoUpload()), changes.pop("download", Float32())
    parts = Parts(rounds=rounds, strategy=changes.pop("strategy", ByExamples()))
    algorithm = changes.pop("algorithm", Toy)(settings or ToySettings(), parts)
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
    if changes.get("placement") == "dedicated":
        actors = len(data.client_ids())
    else:
        changes["actors"] = actors
    evaluation = EvaluationSettings(shards=3, **changes.pop("evaluation", {}))
    engine = EngineSettings(**({"lanes": 3} | changes))
    states = RunFolder(folder).states
    program = Program(algorithm, data, 7, states, None, None, *codes)
    chosen = cohort if isinstance(cohort, CohortSettings) else CohortSettings(size=cohort)
    plan = Plan(rounds, chosen, engine, evaluation, privacy=privacy, clock=clock, audit=audit, attack=attack)
    share = Share(actors, cpus, 0.0, most)
    return Assignment("toy", program, algorithm.assets(data), plan, share, folder)


def run(folder: Path | str, **options: Any) -> dict[str, Any]:
    return session.run(assignment(folder, **options))


def play(folder: Path | str, **options: Any) -> dict[str, Any]:
    """As `run`, but in this process and a fraction of the time: see `in_process`."""
    given = assignment(folder, **options)
    assert "die" not in given.program.algorithm.settings.trouble, "this process would die"
    return in_process.run(given)
