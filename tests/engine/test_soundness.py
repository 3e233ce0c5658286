"""The values that an algorithm returns are checked: an update's type and size, and the server's state."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedray.core.types import Broadcast, Change, Client, Layer, Received, RunError, Server, ServerState, Update
from fedray.engine.driver import session
from fedray.engine.jobs.soundness import check_state, check_update, sizes, written
from fedray.runs.folder import RunFolder
from tests.engine import toys

ONE = np.ones(1, np.float32)


class Wrong(toys.Toy):
    """All clients, the server's training, or the server's update in round 2 go wrong, as `settings.trouble` says."""

    def client_update(self, client: Client, received: Received) -> Update:
        update = super().client_update(client, received)
        if self.settings.trouble == "scalars":
            return replace(update, delta=ONE)
        if self.settings.trouble == "double":
            return replace(update, delta=update.delta.astype(np.float64))
        return update

    def server_train(self, server: Server, received: Received) -> Update:
        update = super().server_train(server, received)
        return replace(update, delta=ONE) if self.settings.trouble == "server" else update

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        after = super().server_update(state, change, round)
        if self.settings.trouble == "state" and round == 1:
            after.params[3] = np.nan
        return after


@pytest.fixture(scope="module", autouse=True)
def shipped(cluster: None) -> None:
    session.ship(sys.modules[__name__])


@pytest.mark.parametrize(("trouble", "words"), [
    ("scalars", "6 of 6 clients failed, .*: client client-\\d\\d: ValueError: the update's delta has 1 numbers, "
     "the algorithm's layers have 1,000: return one difference for each parameter, or NOTHING"),
    pytest.param("double", "the first: client client-\\d\\d: ValueError: the update's delta is float64 [1000], "
                 "not float32", marks=pytest.mark.long),
    pytest.param("server", "Wrong.server_train: the update's delta has 1 numbers, the algorithm's layers have 1,000",
                 marks=pytest.mark.long),
    ("state", "Wrong.server_update: the server's new state holds NaN or infinite values in params: lower the"),
])  # fmt: skip
def test_the_run_ends_before_a_wrong_state_is_committed(tmp_path: Path, trouble: str, words: str) -> None:
    with pytest.raises(RunError, match=words.replace("[", r"\[")):
        toys.play(tmp_path, algorithm=Wrong, settings=toys.ToySettings(trouble=trouble), rounds=3)
    assert RunFolder(tmp_path).saved_rounds() == [0, 1][: 1 + (trouble == "state")]


def update(delta: Any, **vectors: Any) -> Update:
    return Update(delta, {}, vectors=vectors)


@pytest.mark.parametrize(("wrong", "words"), [
    (update(np.ones((2, 2), np.float32)), "delta is float32 [2, 2], not float32 with one dimension: convert it with"),
    (update(torch.ones(4)), "delta is a Tensor, not a numpy array"),
    (update(np.ones(3, np.float32)), "delta has 3 numbers, the algorithm's layers have 4"),
    (update(np.ones(4, np.float32), control=np.ones(2)), "vector 'control' is float64 [2], not float32"),
])  # fmt: skip
def test_updates(wrong: Update, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        check_update(wrong, (4,))


def test_sizes() -> None:
    params = np.ones(5, np.float32)
    assert sizes((Layer("all", 0, sys.maxsize),), Broadcast(params)) == sizes((), Broadcast(params)) == (5,)
    assert sizes((Layer("a", 0, 3), Layer("b", 3, 7)), Broadcast(params)) == (7,)
    assert sizes((Layer("a", 0, 3), Layer("b", 3, 5)), Broadcast(params, constant=2)) == (5, 3)
    assert sizes((Layer("product", 0, 4),), Broadcast(params, constant=2)) == (4,), "what is frozen is in no layer"
    check_update(update(np.empty(0, np.float32), control=ONE), (4,))


@pytest.mark.parametrize(("state", "words"), [
    (ServerState(np.ones(3)), "X.f: the server's new state: params is float64 [3], not float32 with one dimension"),
    (ServerState(ONE), "X.f: the server's new state has 1 parameters, the one before 3"),
    (ServerState(np.ones(3, np.float32), {"moments": [np.array([1.0, np.nan])]}), "values in extra['moments'][0]"),
    (ServerState(np.ones(3, np.float32), {"m": torch.tensor([np.inf])}), "infinite values in extra['m']"),
])  # fmt: skip
def test_states(state: ServerState, words: str) -> None:
    with pytest.raises(RunError, match=re.escape(words)):
        check_state(state, "X.f", 3)
    check_state(ServerState(np.full(3, 3e38, np.float32), {"round": 3, "names": ["a"]}), "X.f", 3)
    with pytest.raises(RunError, match="X.f: returned NoneType, not a ServerState: does it end without `return`"):
        check_state(None, "X.f", 3)  # type: ignore[arg-type]
    with pytest.raises(RunError, match=re.escape("X.f: extra['lock']: a state holds arrays")):
        written(ServerState(ONE, {"lock": object()}), "X.f")
