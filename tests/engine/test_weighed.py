"""Strategies that read the server's pass, losses or groups, in the engine: by hand, and with the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.strategies import Agnostic, CentredClipping, FLTrust, GeometricMedian, QFair, Strategy
from fedray.runs.folder import RunFolder
from tests.engine import toys
from tests.engine.runs import first_round, rows, same

pytestmark = pytest.mark.usefixtures("in_process")


@dataclass(frozen=True)
class GroupedToyData(toys.ToyData):
    """The odd clients are a group, the even ones another."""

    @property
    def groups(self) -> dict[str, str]:
        return self.client_groups()

    def client_groups(self) -> dict[str, str]:
        return {client: "odd" if int(client[-1]) % 2 else "even" for client in self.client_ids()}


class Plain(toys.Toy):
    """The toy whose predictions name speakers, whose clients differ in examples, and whose server only teaches."""

    def client_update(self, client: Any, received: Any) -> Any:
        update = super().client_update(client, received)
        return toys.replace(update, report=update.report | {"examples": 1.0 + int(client.id[-2:])})

    def evaluate(self, data: Any, received: Any, final: bool) -> Any:
        scored = super().evaluate(data, received, final)
        rows = [{"utterance": f"{n}", "speaker": f"client-0{n}", "errors": n} for n in range(2)]
        return toys.replace(scored, predictions=rows if final else [])

    def server_update(self, state: Any, change: Any, round: int) -> Any:
        assert change.server is not None
        params = state.params + (0 if change.clients is None else change.clients)
        return toys.ServerState(np.asarray(params, np.float32), {"rounds": state.extra["rounds"] + 1})


def options(strategy: Strategy) -> dict[str, Any]:
    return {"strategy": strategy, "algorithm": Plain, "data": GroupedToyData(), "cohort": 6}


def trust(deltas: dict[str, np.ndarray], server: np.ndarray) -> np.ndarray:
    total, whole = np.zeros(toys.SIZE), 0.0
    for delta in deltas.values():
        cosine = max(0.0, float(delta @ server / np.linalg.norm(delta) / np.linalg.norm(server)))
        whole += cosine
        total += cosine * np.linalg.norm(server) / np.linalg.norm(delta) * delta
    return total / whole


def fair(deltas: dict[str, np.ndarray], server: np.ndarray) -> np.ndarray:
    losses = {client: float(np.abs(delta).mean()) for client, delta in deltas.items()}
    steps = [losses[client] + np.linalg.norm(delta) ** 2 / 0.1 for client, delta in deltas.items()]
    return sum(losses[client] * delta for client, delta in deltas.items()) / sum(steps)


def agnostic(deltas: dict[str, np.ndarray], server: np.ndarray) -> np.ndarray:
    means = []
    for parity in (0, 1):
        mine = [client for client in deltas if int(client[-1]) % 2 == parity]
        counts = np.array([1.0 + int(client[-2:]) for client in mine])
        means.append((counts[:, None] * np.stack([deltas[client] for client in mine])).sum(0) / counts.sum())
    return np.mean(means, axis=0)


@pytest.mark.parametrize(("strategy", "by_hand"), [(FLTrust(), trust), (QFair(), fair), (Agnostic(), agnostic)])
def test_the_first_round_is_the_one_by_hand(tmp_path: Path, strategy: Strategy, by_hand: Any) -> None:
    deltas, server, theta_0 = first_round(toys.assignment(tmp_path / "hand", **options(strategy)))
    toys.play(tmp_path / "run", rounds=1, **options(strategy))
    found = RunFolder(tmp_path / "run").load(1).state.params - theta_0
    expected = by_hand(deltas, server)
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    "strategy",
    [
        FLTrust(),
        *(pytest.param(s, marks=pytest.mark.long) for s in (QFair(), Agnostic(), GeometricMedian(), CentredClipping())),
    ],
)
def test_the_bits_of_any_actors_and_of_a_resumed_run(tmp_path: Path, strategy: Strategy) -> None:
    toys.play(tmp_path / "one", **options(strategy))
    toys.play(tmp_path / "three", actors=3, **options(strategy))
    toys.play(tmp_path / "resumed", rounds=2, **options(strategy))
    toys.play(tmp_path / "resumed", actors=2, **options(strategy))
    same(tmp_path / "one", tmp_path / "three")
    same(tmp_path / "one", tmp_path / "resumed")


def test_the_weights_of_groups_are_in_the_rows_and_scores_in_the_results(tmp_path: Path) -> None:
    results = toys.play(tmp_path / "run", **options(Agnostic(step=0.5)))
    shares = [(row["strategy/lambda/even"], row["strategy/lambda/odd"]) for row in rows(tmp_path / "run")]
    assert all(sum(pair) == pytest.approx(1) for pair in shares) and shares[0] != (0.5, 0.5)
    # The rows of client-00 have no errors, those of client-01 one each.
    assert results["groups"]["best"] == {f"{split}/accuracy": {"even": 100.0, "odd": 0.0} for split in ("dev", "test")}
    assert "\tgroup\n" in RunFolder(tmp_path / "run").read_text("predictions.tsv")


def test_a_cohort_of_no_weight_counts_nobody(tmp_path: Path) -> None:
    """An algorithm that reads `change.clients` where a change is `answered` finds it."""

    class Strict(Plain):
        def server_update(self, state: Any, change: Any, round: int) -> Any:
            assert (change.answered > 0) == (change.clients is not None)
            return super().server_update(state, change, round)

    played = options(Agnostic(step=100.0)) | {"algorithm": Strict, "cohort": 1}
    toys.play(tmp_path / "run", **played)
    assert {row["strategy/lambda/odd"] for row in rows(tmp_path / "run")} <= {0.0, 1.0}


def test_trust_needs_the_servers_pass(tmp_path: Path) -> None:
    class Idle(Plain):
        def server_train(self, server: Any, received: Any) -> None:
            return None

    with pytest.raises(Exception, match="the strategy compares clients with what the server trains"):
        toys.play(tmp_path / "run", **options(FLTrust()) | {"algorithm": Idle})
