"""Attacked rounds: attackers send what their attack says, and the bits do not depend on actors or interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.attackers import Attack, InnerProduct, LittleIsEnough, MinMax, Noise, SignFlip
from fedray.core.seeds import numpy_generator
from fedray.core.strategies import Median, Strategy, Uniform
from fedray.core.types import Server, Update
from fedray.runs.folder import RunFolder
from tests.engine import toys
from tests.engine.runs import first_round, rows, same

SHARE = 0.5  # 6 of 12 clients


class Still(toys.Toy):
    """The toy without the server's training: a round's change is the clients' mean."""

    def server_train(self, server: Server, received: Any) -> Update:
        return Update(np.zeros(toys.SIZE, np.float32), {"examples": 1.0})


def options(attack: Attack | None, strategy: Strategy | None = None) -> dict[str, Any]:
    found = {"algorithm": Still, "strategy": strategy or Uniform(), "cohort": 8}
    return found if attack is None else found | {"attack": attack}


@pytest.mark.parametrize("attack", [SignFlip(share=SHARE, scale=3), Noise(share=SHARE), InnerProduct(share=SHARE),
                                    LittleIsEnough(share=SHARE, z=1), MinMax(share=SHARE)])  # fmt: skip
def test_a_round_is_the_mean_of_what_is_sent(in_process: None, tmp_path: Path, attack: Attack) -> None:
    assignment = toys.assignment(tmp_path / "hand", **options(attack))
    trained, _, theta_0 = first_round(assignment)
    attackers = set(attack.chosen(assignment.program.data.client_ids(), assignment.program.seed)) & set(trained)
    assert 2 <= len(attackers) <= 6
    own = [trained[client] for client in trained if client in attackers]
    sent = dict(trained)
    for client in attackers:
        if isinstance(attack, SignFlip | Noise):
            sent[client] = attack.sent(trained[client], numpy_generator(7, "attack", 0, client))
        else:
            sent[client] = attack.together(own, 8)  # type: ignore[attr-defined]
    toys.play(tmp_path / "run", rounds=1, **options(attack))
    folder = RunFolder(tmp_path / "run")
    assert folder.load(1).state.params - theta_0 == pytest.approx(np.mean(list(sent.values()), axis=0), abs=1e-6)
    assert folder.rows("metrics.jsonl")[0]["attack/clients"] == len(attackers)
    named = folder.read_json("results.json")["attack"]["clients"]
    assert attackers <= set(named) and len(named) == 6


@pytest.mark.parametrize("attack", [Noise(share=SHARE, rounds=[2, 3]), LittleIsEnough(share=SHARE, z=1)])
@pytest.mark.parametrize("strategy", [Uniform(), pytest.param(Median(), marks=pytest.mark.long)])
def test_the_bits_of_any_actors_and_of_a_resumed_run(
    in_process: None, tmp_path: Path, attack: Attack, strategy: Strategy
) -> None:
    toys.play(tmp_path / "one", **options(attack, strategy))
    toys.play(tmp_path / "three", actors=3, **options(attack, strategy))
    toys.play(tmp_path / "resumed", rounds=2, actors=2, **options(attack, strategy))
    toys.play(tmp_path / "resumed", **options(attack, strategy))
    same(tmp_path / "one", tmp_path / "three")
    same(tmp_path / "one", tmp_path / "resumed")


def test_before_the_attack_nothing_changes(in_process: None, tmp_path: Path) -> None:
    for name, attack in (("honest", None), ("late", InnerProduct(share=SHARE, rounds=[3, 9]))):
        toys.play(tmp_path / name, **options(attack))
    honest, late = (rows(tmp_path / name) for name in ("honest", "late"))
    assert [row.pop("attack/clients") > 0 for row in late] == [False, False, True, True]
    assert late[:2] == honest[:2] and late[2]["dev/distance"] != honest[2]["dev/distance"]


def test_an_attacker_that_fails_leaves_the_others_their_attack(in_process: None, tmp_path: Path) -> None:
    attack = InnerProduct(share=SHARE)
    assignment = toys.assignment(tmp_path / "hand", **options(attack))
    trained, _, theta_0 = first_round(assignment)
    attackers = [client for client in trained if client in attack.chosen(assignment.program.data.client_ids(), 7)]
    for trouble in ("raise", "nan"):
        settings = toys.ToySettings(trouble=trouble, troubled=(attackers[0],))
        folder = tmp_path / trouble
        toys.play(folder, rounds=1, settings=settings, failures_allowed=0.5, **options(attack))
        left = [trained[client] for client in attackers[1:]]
        honest = [trained[client] for client in trained if client not in attackers]
        expected = np.mean([*honest, *([-0.5 * np.mean(left, axis=0)] * len(left))], axis=0)
        assert RunFolder(folder).load(1).state.params - theta_0 == pytest.approx(expected, abs=1e-6)
        assert [row["client"] for row in RunFolder(folder).rows("failures.jsonl")] == attackers[:1]
