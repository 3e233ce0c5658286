"""The workbench: rounds in one process without Ray have the bits of a run, and can be looked into."""

from __future__ import annotations

import bdb
import io
import pdb
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch

import fedray
from fedray.algorithms.base import FederatedSGD, SGDSettings, trained
from fedray.core.types import Client, Received
from fedray.runs.folder import RunFolder
from tests import keywords, speech
from tests.engine.runs import rows

ROUNDS = 3
MUTUAL = {"kind": "fedmlac", "sizes": ["tiny", "lite"], "client": {"lr": 0.1, "batch": 4}}
PHONE = {"seconds": 0.5, "down": 1e6, "up": 1e6, "watts": 2, "radio": 1, "lost": 0.2}


pytestmark = pytest.mark.usefixtures("workbench")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("keywords")
    keywords.write_corpus(folder)
    return folder


def fednst(words: Path, folder: Path) -> dict[str, Any]:
    speech.write_corpus(folder)
    return speech.settings(folder)


def held(words: Path, folder: Path) -> dict[str, Any]:
    """Two models a client, states, updates that wait for the cohort, personal scores, all clients prepared."""
    changes = {"evaluation": {"shards": 2, "every": 2, "personal_every": 1}, "strategy": {"kind": "layerwise_pruning"}}
    engine = {"lanes": 2, "actors": 1, "cpus_per_client": 0.5, "prepare": "all", "vectorise": 2}
    return keywords.settings(words, algorithm=MUTUAL, engine=engine, **changes)


def virtual(words: Path, folder: Path) -> dict[str, Any]:
    """A virtual clock with models of earlier rounds, and what uploads lose, which clients keep."""
    changes = {
        "devices": {"kind": "classes", "classes": {"phone": PHONE}, "spread": 1.0},
        "clock": {"kind": "buffered", "concurrency": 3, "buffer": 2},
        "upload": {"kind": "topk", "share": 0.2, "values": "int8"},
    }
    return keywords.settings(words, **changes)


def rounds_of(bench: fedray.Workbench, rounds: int) -> tuple[list[fedray.RunState], list[dict[str, Any]]]:
    states, found = [bench.start()], []
    for _ in range(rounds):
        state, row = bench.step(states[-1])
        states.append(state)
        found.append(row)
    return states, found


def known(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the nulls of metrics.jsonl, whose rows have the same columns."""
    return {name: value for name, value in row.items() if value is not None}


def same(one: fedray.RunState, other: fedray.RunState) -> bool:
    return one.params.tobytes() == other.params.tobytes() and one.progress.clients == other.progress.clients


@pytest.mark.parametrize("settings", [fednst, held, virtual], ids=lambda one: one.__name__)
def test_rounds_have_the_bits_and_the_rows_of_a_run(
    settings: Callable[[Path, Path], dict[str, Any]], words: Path, tmp_path: Path, in_process: None
) -> None:
    wanted = settings(words, tmp_path / "corpus")
    folder = RunFolder(fedray.run(wanted, out=tmp_path / "run").folder)
    bench = fedray.open(wanted)
    states, found = rounds_of(bench, ROUNDS)
    saved = folder.load(ROUNDS)
    assert same(bench.step(bench.load(folder.root, ROUNDS - 1))[0], states[-1])
    assert states[-1].params.tobytes() == saved.state.params.tobytes()
    assert states[-1].progress.clients == saved.clients  # with the hashes of their states
    assert [known(row) for row in found] == [known(row) for row in rows(folder)]


def test_a_state_is_a_value(words: Path, tmp_path: Path) -> None:
    bench = fedray.open(held(words, tmp_path))
    states, _ = rounds_of(bench, 2)
    other, _ = bench.step(states[0])  # after a later state's step
    assert same(other, states[1]) and not same(other, states[2])
    assert same(fedray.open(held(words, tmp_path)).step(other)[0], states[2])  # of another workbench


@dataclass(frozen=True)
class NaiveSettings(SGDSettings):
    """Settings of a user's algorithm."""

    bad: str = ""  # the client whose loss is NaN


class Naive(FederatedSGD):
    """A user's algorithm with a mistake for one client."""

    Settings = NaiveSettings
    settings: NaiveSettings

    def client_train(self, client: Client, received: Received) -> Any:
        model, targets = self.local_model(received), self.task.targets(client.data)

        def loss(model: Any, batch: Any, classes: Any) -> torch.Tensor:
            found = torch.nn.functional.cross_entropy(model.logits(batch), torch.from_numpy(classes))
            return found * float("nan") if client.id == self.settings.bad and model.steps == 1 else found

        losses = model.fit(client.data, targets, self.local_settings(received), client.seed, loss=loss)
        return trained(model, client.data, losses)


def naive(words: Path, bad: str = "") -> fedray.Workbench:
    algorithm = {"kind": "naive", "bad": bad, "client": {"lr": 0.1, "batch": 4}, "pretrain": {"steps": 0}}
    return fedray.open(keywords.settings(words, algorithm=algorithm), algorithms={"naive": Naive})


def test_a_client_its_update_and_the_sum_can_be_looked_at(words: Path) -> None:
    bench = naive(words)
    state = bench.start()
    cohort = list(bench.cohort(state))
    assert len(cohort) == 3 and set(cohort) < set(bench.data.client_ids())
    client = bench.client(state, cohort[0])
    assert client.id == cohort[0] and len(client.data) == 8
    updates = [bench.update(state, name) for name in cohort]
    mean = np.mean([update.delta for update in updates], axis=0, dtype=np.float64)  # all have eight clips
    change = bench.change(state)
    assert change.clients is not None and change.answered == 3
    np.testing.assert_allclose(change.clients, mean, atol=1e-7)
    after, row = bench.step(state)
    np.testing.assert_allclose(after.params[: mean.size] - state.params[: mean.size], mean, atol=1e-6)
    assert row["dev/accuracy"] == bench.evaluate(after).metrics["dev/accuracy"]
    assert set(bench.evaluate_personal(after, cohort[0]).metrics) == {"accuracy", "loss", "macro_f1"}
    part = replace(client, data=client.data.take(np.arange(4)))
    assert bench.update(state, part).metrics["steps"] == 1
    outsider = next(name for name in bench.data.client_ids() if name not in cohort)
    assert np.isfinite(bench.update(state, outsider).delta).all()
    assert bench.received(state).params.tobytes() == state.params.tobytes()


def test_a_client_that_fails_is_named_with_its_round_step_and_utterances(words: Path) -> None:
    bench = naive(words)
    bad = bench.cohort(bench.start())[1]
    bench = naive(words, bad)
    state = bench.start()
    for failing in (lambda: bench.step(state), lambda: bench.update(state, bad)):
        with pytest.raises(ValueError, match="the training loss is nan") as error:
            failing()
        step, where = error.value.__notes__
        assert where == f"client {bad} in round 1"
        assert step.startswith("in step 2 of its training, on ") and step.count(bad) == 4


def test_names_that_do_not_exist_are_told_with_those_that_do(words: Path) -> None:
    bench = naive(words)
    state = bench.start()
    with pytest.raises(ValueError, match=r"no client 's1': `data.client_ids\(\)` has 6, such as \['s01'"):
        bench.update(state, "s1")
    with pytest.raises(ValueError, match="no split 'train': there are dev, test"):
        bench.evaluate(state, "train")
    with pytest.raises(ValueError, match="is not a run folder"):
        bench.load(words)


def test_pdb_stops_in_a_client_and_ray_has_no_part(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in ("init", "put", "get", "wait"):
        monkeypatch.setattr(ray, function, lambda *args, **options: pytest.fail("the workbench used Ray"))
    said = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("up\np client.id, len(client.data)\nq\n"), stdout=said)
    monkeypatch.setattr(Naive, "local_settings", lambda self, received: debugger.set_trace())
    bench = naive(words)
    with pytest.raises(bdb.BdbQuit):
        bench.step(bench.start())
    assert re.search(r"\('s0\d', 8\)", said.getvalue())
