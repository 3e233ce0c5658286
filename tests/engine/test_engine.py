"""The engine's promises on a toy algorithm: the same bits for any number of actors, after a crash and after a resume;
no failure goes unreported.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedray.core.strategies import ByLoss
from fedray.core.types import Client, Received, RunError, State
from fedray.engine.actors.actor import ClientActor
from fedray.runs.folder import RunFolder
from fedray.storage import serialize
from tests.engine import toys
from tests.engine.runs import bits, first_round, rows, same

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.long
def test_actors_of_ray_give_the_same_bits(straight: Path, tmp_path: Path) -> None:
    toys.run(tmp_path, actors=3)
    same(tmp_path, straight)


@pytest.mark.parametrize("placement", [{"actors": 2}, {"actors": 5}, {"placement": "dedicated"}], ids=str)
def test_any_placement_gives_the_same_bits(straight: Path, tmp_path: Path, placement: dict[str, Any]) -> None:
    toys.play(tmp_path, **placement)
    same(tmp_path, straight)


@pytest.mark.nightly
def test_an_actor_of_ray_a_client_gives_the_same_bits(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 2, "data": toys.ToyData(3), "cohort": 2, "lanes": 2}
    toys.play(tmp_path / "pooled", **options)
    toys.run(tmp_path / "dedicated", placement="dedicated", **options)
    same(tmp_path / "dedicated", tmp_path / "pooled", 2)


def test_a_resumed_run_is_the_straight_run(straight: Path, tmp_path: Path) -> None:
    toys.play(tmp_path, rounds=2)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(
        metrics.read_text() + '{"round": 3, "train/loss": 9}\n{"round": 4, "tr'
    )  # of a round that was not committed
    stray = tmp_path / "states" / "client-00" / "000003.pt"
    stray.parent.mkdir(exist_ok=True)
    serialize.save({"left": 1}, stray)
    toys.play(tmp_path, rounds=4)
    same(tmp_path, straight)


def test_a_round_is_what_the_definition_says(tmp_path: Path) -> None:
    """Round 0 equals a computation by hand: weights are equal (two examples each), the server's change is added."""
    deltas, learnt, before = first_round(toys.assignment(tmp_path))
    toys.play(tmp_path, rounds=1)
    expected = before + np.mean(np.array(list(deltas.values()), np.float64), axis=0) + learnt
    np.testing.assert_allclose(RunFolder(tmp_path).load(1).state.params, expected, rtol=2e-6, atol=1e-6)


def test_rows_and_results(straight: Path) -> None:
    table = RunFolder(straight).rows("metrics.jsonl")
    assert [row["round"] for row in table] == [1, 2, 3, 4]
    assert all(list(row) == list(table[0]) for row in table)
    needed = {
        "train/loss",
        "dev/distance",
        "clients/ok",
        "clients/failed",
        "traffic/up_bytes",
        "traffic/down_bytes",
        "lr/client",
    }
    assert needed | {"time/round_s"} <= set(table[0])
    assert [row["lr/client"] for row in table] == [0.5, 0.25, 0.5 / 3, 0.125]
    # Up: 1,000 float32 and two scalars per client. Down: the parameters and one setting. In its first cohort, a client
    # also gets the assets, and the parameters of round 0 if this is a later round.
    assert all(row["traffic/up_bytes"] == 6 * (4000 + 16) for row in table)
    assert table[0]["traffic/down_bytes"] == 6 * 4008 + 6 * 24
    assert [row["traffic/down_bytes"] - 6 * 4008 for row in table[1:]] == [
        row["clients/prepared"] * (4008 + 24) for row in table[1:]
    ]
    results = json.loads((straight / "results.json").read_text())
    best = min(table, key=lambda row: row["dev/distance"])
    assert results["best"]["round"] == best["round"] and math.isclose(
        results["best"]["dev/distance"], best["dev/distance"]
    )
    assert {"dev/distance", "test/distance"} <= set(results["seed"])
    assert results["traffic/total_bytes"] == table[-1]["traffic/total_bytes"]
    spent = RunFolder(straight).load(4).totals["seconds"]
    assert 0.5 * sum(row["time/round_s"] for row in table) < spent < results["time/total_s"]
    header, *rows = [line.split("\t") for line in (straight / "predictions.tsv").read_text().splitlines()]
    assert header == ["model", "split", "item"] and {row[0] for row in rows} == {"seed", "best"}
    assert list((straight / "tensorboard").glob("events.out.tfevents.*"))


def test_old_checkpoints_and_states_are_collected(straight: Path) -> None:
    folder = RunFolder(straight)
    best = {folder.load(saved).best["round"] for saved in (3, 4)}  # type: ignore[index]
    assert set(folder.saved_rounds()) == {0, 3, 4} | best
    named = {(client, s.version) for saved in folder.saved_rounds() for client, s in folder.load(saved).files()}
    on_disk = {(path.parent.name, int(path.stem)) for path in (straight / "states").rglob("*.pt")}
    assert on_disk == named


TROUBLES = {
    "raise": "LookupError: 'no luck",
    "nan": "NaN or infinite",
    "infinite loss": "the strategy cannot weigh the report",
}


@pytest.mark.parametrize(
    "trouble", ["raise", *(pytest.param(name, marks=pytest.mark.long) for name in ("nan", "infinite loss"))]
)
def test_a_client_that_fails_is_counted_and_named(tmp_path: Path, trouble: str) -> None:
    settings, words = toys.ToySettings(trouble=trouble, troubled=("client-03",)), TROUBLES[trouble]
    toys.play(tmp_path, settings=settings, strategy=ByLoss(), failures_allowed=0.2)
    failures = RunFolder(tmp_path).rows("failures.jsonl")
    table = RunFolder(tmp_path).rows("metrics.jsonl")
    assert failures and {failure["client"] for failure in failures} == {"client-03"}
    assert all(words.split(":")[0] in failure["reason"] for failure in failures)
    first, *others = failures  # a traceback is written once
    assert "Traceback" in first["traceback"]
    where = {"round": first["round"], "client": first["client"]}
    assert all(failure["traceback"] is None and failure["same_as"] == where for failure in others)
    assert [row["clients/failed"] for row in table] == [sum(f["round"] == r for f in failures) for r in range(1, 5)]
    assert all(row["clients/ok"] + row["clients/failed"] == 6 for row in table)


def test_too_many_failures_end_the_run_in_words(tmp_path: Path) -> None:
    everybody = tuple(toys.ToyData().client_ids())
    with pytest.raises(RuntimeError, match=r"6 of 6 clients failed.*failures.jsonl.*no luck"):
        toys.play(tmp_path, settings=toys.ToySettings(trouble="raise", troubled=everybody))
    assert len(RunFolder(tmp_path).rows("failures.jsonl")) == 6
    assert RunFolder(tmp_path).rows("metrics.jsonl") == []


@pytest.mark.long
def test_a_killed_actor_changes_no_bit(straight: Path, tmp_path: Path) -> None:
    settings = toys.ToySettings(trouble="die once", troubled=("client-05",), folder=str(tmp_path))
    toys.run(tmp_path / "run", actors=2, settings=settings)
    assert list(tmp_path.glob("dead-*")), "nobody died: the test tests nothing"
    same(tmp_path / "run", straight)


@pytest.mark.long
def test_a_client_that_kills_its_actor_twice_is_left_out(tmp_path: Path) -> None:
    settings = toys.ToySettings(trouble="die", troubled=("client-05",), folder=str(tmp_path))
    toys.run(tmp_path / "run", rounds=2, settings=settings, failures_allowed=0.2)
    failures = RunFolder(tmp_path / "run").rows("failures.jsonl")
    assert failures and all(f["client"] == "client-05" and "killed its actor 2 times" in f["reason"] for f in failures)


@pytest.mark.long
def test_an_orphan_of_a_client_that_failed_does_not_cost_its_state(tmp_path: Path) -> None:
    """A client that failed may leave a state with the number of a round that counts. A resume removes it; the state
    that the checkpoint names stays.
    """
    toys.play(tmp_path, rounds=2)
    named = {(client, s.version) for client, s in RunFolder(tmp_path).load(2).files()}
    client, version = next((client, version) for client, version in sorted(named) if version == 1)
    serialize.save({"left": 1}, tmp_path / "states" / client / "000002.pt")
    toys.play(tmp_path, rounds=3)
    assert not [f for f in RunFolder(tmp_path).rows("failures.jsonl") if f["client"] == client]


def test_reports_of_clients_by_round_survive_a_stop(tmp_path: Path) -> None:
    evaluation, settings = {"client_reports": True}, toys.ToySettings(trouble="raise", troubled=("client-03",))
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    toys.play(whole, settings=settings, failures_allowed=0.2, evaluation=evaluation)
    toys.play(stopped, rounds=2, settings=settings, failures_allowed=0.2, evaluation=evaluation)
    RunFolder(stopped).append("reports.jsonl", [{"round": 3, "client": "of a round that does not count"}])
    toys.play(stopped, settings=settings, failures_allowed=0.2, evaluation=evaluation)
    reports = RunFolder(whole).rows("reports.jsonl")
    assert reports == RunFolder(stopped).rows("reports.jsonl")
    succeeded = [row["clients/ok"] for row in rows(whole)]
    assert [sum(report["round"] == round for report in reports) for round in range(1, 5)] == succeeded
    assert all(report["client"] != "client-03" and report["report/examples"] > 0 for report in reports)


@pytest.mark.long
def test_checkpoints_now_and_then_lose_nothing(straight: Path, tmp_path: Path) -> None:
    """With checkpoint_every 3, the rounds after the last checkpoint are played again, to the same bits."""
    toys.play(tmp_path, rounds=2, checkpoint_every=3)
    toys.play(tmp_path, rounds=4, checkpoint_every=3)
    assert rows(tmp_path) == rows(straight)
    assert bits(tmp_path, 4)[0] == bits(straight, 4)[0]


def test_a_round_in_which_nobody_answers_changes_what_the_server_learnt_only(tmp_path: Path) -> None:
    everybody = tuple(toys.ToyData().client_ids())
    toys.play(tmp_path, rounds=1, settings=toys.ToySettings(trouble="raise", troubled=everybody), failures_allowed=1.0)
    (row,) = RunFolder(tmp_path).rows("metrics.jsonl")
    assert row["clients/ok"] == 0 and row["clients/failed"] == 6 and row["train/loss"] is None
    _, learnt, before = first_round(toys.assignment(tmp_path / "reference"))
    np.testing.assert_allclose(RunFolder(tmp_path).load(1).state.params, before + learnt, rtol=1e-6)


def test_a_second_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked(), pytest.raises(ValueError, match="another run is using this folder"):
        toys.play(tmp_path)


@pytest.mark.long
def test_an_idle_phase_prepares_everybody(straight: Path, tmp_path: Path) -> None:
    """`prepare: all` gives the same states as preparing each client at its first cohort."""
    toys.play(tmp_path, prepare="all")
    assert RunFolder(tmp_path).load(0).clients.keys() == set(toys.ToyData().client_ids())
    prepared = {k: v for k, v in rows(tmp_path)[-1].items() if k.startswith(("train/", "dev/"))}
    assert prepared == {k: v for k, v in rows(straight)[-1].items() if k.startswith(("train/", "dev/"))}
    assert bits(tmp_path, 4)[0] == bits(straight, 4)[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_gpus_that_ray_counts_and_torch_does_not_see_are_refused() -> None:
    with pytest.raises(RunError, match="torch finds none: set engine.gpus_per_client=0"):
        ClientActor.ping(SimpleNamespace(gpus=0.25), None)  # type: ignore[arg-type]


class Unprepared(toys.Toy):
    """One client cannot prepare its first state."""

    def client_prepare(self, client: Client, received: Received) -> State:
        if client.id == "client-03":
            raise LookupError("no state of client-03")
        return super().client_prepare(client, received)


def test_an_idle_phase_counts_what_it_sends_and_who_fails(tmp_path: Path) -> None:
    """Eleven clients get the parameters, a setting and the assets before round 1. A failure there counts too."""
    results = toys.play(tmp_path, rounds=1, prepare="all", algorithm=Unprepared, failures_allowed=0.5)
    before = RunFolder(tmp_path).load(0).totals
    (row,) = RunFolder(tmp_path).rows("metrics.jsonl")
    assert before["down_bytes"] == 11 * (4008 + 24) and before["failed"] == 1
    assert results["traffic/down_bytes"] == before["down_bytes"] + row["traffic/down_bytes"]
    assert results["clients/failed"] == 1 + row["clients/failed"]
