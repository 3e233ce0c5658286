"""Personal models are scored in rounds and at the end, with the same results for any number of actors and every client
weighted alike; failures are named.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest

from fedray.core.metrics import Metrics
from fedray.core.types import Client, Evaluation, Received, RunError, Update
from fedray.runs.folder import RunFolder
from tests.engine import toys
from tests.engine.runs import first_round, same

pytestmark = pytest.mark.usefixtures("cluster")
OWN = {"personal_every": 2, "personal_utterances": 100, "personal_final": True, "personal_final_utterances": 500}
OWN |= {"personal_predictions": True}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    toys.play(folder, rounds=3, actors=2, evaluation=OWN)
    return folder


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "personal.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_rounds_that_are_scored(straight: Path) -> None:
    """Every second round and the last are scored, on a part of dev. Toys count their rounds in their state."""
    rows = RunFolder(straight).rows("metrics.jsonl")
    assert [row["personal/distance"] is not None for row in rows] == [False, True, True]
    assert 1 < rows[1]["personal/rounds"] <= 2 and rows[1]["time/personal_actors_s"] > 0


def test_the_end(straight: Path) -> None:
    """All clients that ever took part are scored on both splits; results.json has plain means and deviations."""
    clients = RunFolder(straight).load(3).clients
    took_part = sorted(client for client, record in clients.items() if record.rounds)
    own = json.loads((straight / "results.json").read_text())["personal"]
    assert (own["clients"], own["round"]) == (len(took_part), 3)
    found = table(straight)
    assert [(row["client"], row["split"]) for row in found] == [
        (client, split) for client in took_part for split in ("dev", "test")
    ]
    assert {row["client"]: float(row["rounds"]) for row in found} == {
        client: clients[client].rounds for client in took_part
    }
    distances = [float(row["distance"]) for row in found if row["split"] == "test"]
    assert own["test/distance"] == pytest.approx(fmean(distances)) and own["test/distance_sd"] == pytest.approx(
        pstdev(distances)
    )


def test_any_number_of_actors_gives_the_same(straight: Path, tmp_path: Path) -> None:
    toys.play(tmp_path, rounds=3, evaluation=OWN)
    same(tmp_path, straight, 3)
    assert table(tmp_path) == table(straight)
    rows, others = ((folder / "personal_predictions.tsv").read_text() for folder in (tmp_path, straight))
    assert rows == others and rows.startswith("client\tsplit\titem\tnoise\n")
    assert rows.count("\n") == 1 + len(table(straight)), "a toy scores one item of each split"


class Kept(toys.Toy):
    """Clients keep their prepared state; the scores are that state's number and the share of work they had time for."""

    def client_update(self, client: Client, received: Received) -> Update:
        assert client.state is not None
        return replace(super().client_update(client, received), state=None)

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, np.ndarray], final: bool
    ) -> dict[str, Evaluation]:
        assert client.state is not None
        found = Metrics(prepared=(client.state["prepared"], 1), work=(received.work, 1))
        return {split: Evaluation(found) for split in data}


def test_a_client_that_keeps_its_old_state_is_scored_with_it(tmp_path: Path) -> None:
    toys.play(tmp_path, rounds=3, cohort=12, algorithm=Kept, evaluation={"personal_every": 1})
    rows = RunFolder(tmp_path).rows("metrics.jsonl")
    assert [row["clients/failed"] for row in rows] == [0, 0, 0]
    assert len({row["personal/prepared"] for row in rows}) == 1 and rows[2]["personal/prepared"] > 0
    first, last = ({name: of.state for name, of in RunFolder(tmp_path).load(t).clients.items()} for t in (1, 3))
    assert first == last and len(first) == 12 and None not in first.values(), "it was written once"


class Owning(toys.ToyData):
    """Each client has its own part of dev: its number, four times."""

    def client_part(self, client: str, split: str) -> np.ndarray | None:  # type: ignore[override]
        return np.full(4, int(client[-2:]), np.float32) if split == "dev" else None


class Means(toys.Toy):
    """The score is the mean of the data that the personal model was scored on."""

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, np.ndarray], final: bool
    ) -> dict[str, Evaluation]:
        return {split: Evaluation(Metrics(mean=(float(part.mean()), 1))) for split, part in data.items()}


def test_a_client_is_scored_on_the_part_of_a_split_that_is_its_own(tmp_path: Path) -> None:
    """A client is scored on its own part, in rounds and at the end; if it has none, on the shared data."""
    asked = {"personal_every": 1, "personal_final": True}
    toys.play(tmp_path, rounds=1, data=Owning(4), cohort=4, algorithm=Means, evaluation=asked)
    (row,) = RunFolder(tmp_path).rows("metrics.jsonl")
    assert row["personal/mean"] == 1.5
    found = {(row["client"], row["split"]): float(row["mean"]) for row in table(tmp_path)}
    assert [found[client, "dev"] for client in Owning(4).client_ids()] == [0, 1, 2, 3]
    assert len({found[client, "test"] for client in Owning(4).client_ids()}) == 1


def test_a_client_whose_model_cannot_be_scored_leaves_nothing_in_its_round(tmp_path: Path) -> None:
    deltas, learnt, before = first_round(toys.assignment(tmp_path / "hand"))
    troubled = tuple(sorted(deltas)[:2])
    settings = toys.ToySettings(trouble="own", troubled=troubled)
    asked = {"personal_every": 1}
    toys.play(tmp_path / "run", rounds=1, settings=settings, failures_allowed=0.5, evaluation=asked)
    (row,) = RunFolder(tmp_path / "run").rows("metrics.jsonl")
    kept = np.array([delta for client, delta in deltas.items() if client not in troubled], np.float64)
    assert row["clients/failed"] == 2 and row["train/loss"] == pytest.approx(np.abs(kept).mean())
    found = RunFolder(tmp_path / "run").load(1).state.params
    np.testing.assert_allclose(found, before + kept.mean(axis=0) + learnt, rtol=2e-6, atol=1e-6)


@pytest.mark.long
def test_a_model_that_cannot_be_scored_is_named(tmp_path: Path) -> None:
    """At the end, the client is left out, with its traceback in failures.jsonl; too many such failures end the run."""
    settings = toys.ToySettings(trouble="own", troubled=("client-03",))
    toys.play(tmp_path / "one", rounds=2, cohort=12, evaluation={"personal_final": True}, settings=settings)
    own = json.loads((tmp_path / "one" / "results.json").read_text())["personal"]
    (fault,) = RunFolder(tmp_path / "one").rows("failures.jsonl")
    assert fault["round"] == 3, "behind the last round: a resume, which scores again, drops it"
    assert own["clients"] == 11 and fault["client"] == "client-03" and "no model of client-03" in fault["traceback"]
    with pytest.raises(RunError, match=r"1 of 12 clients failed.*client-03: LookupError: no model of client-03"):
        toys.play(
            tmp_path / "two",
            rounds=2,
            cohort=12,
            evaluation={"personal_final": True},
            settings=settings,
            failures_allowed=0.0,
        )
