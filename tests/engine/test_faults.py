"""Faults: what the user is told, what stays on disk, and that the run resumes to the bits of an undisturbed run."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.metrics import Metrics
from fedray.core.types import Change, Client, Evaluation, Layer, Received, RunError, ServerState, Update
from fedray.engine.actors.actor import ClientActor
from fedray.engine.driver import session
from fedray.runs.folder import RunFolder
from fedray.storage.files import StorageError
from tests.engine import toys
from tests.engine.runs import first_round, same
from tests.stores import small_disk


@dataclass(frozen=True)
class OneWithoutData(toys.ToyData):
    empty: str = ""

    def cost(self, client: str) -> float:
        return 0.0 if client == self.empty else super().cost(client)


class NeverStarts(toys.Toy):
    """Fails when an actor is made, and counts these attempts."""

    def layers(self) -> tuple[Layer, ...]:
        with (Path(self.settings.folder) / "starts").open("a") as file:
            file.write("x")
        raise LookupError("the lexicon is not on this machine")


class Overflowing(toys.Toy):
    """The first troubled client sends an infinite number, the others two with opposite signs."""

    def client_update(self, client: Client, received: Received) -> Update:
        update = super().client_update(client, received)
        if client.id in self.settings.troubled:
            update.delta[7] = np.inf
            update.delta[8] = 0.0 if client.id == self.settings.troubled[0] else -np.inf
        return update


class Filling(toys.Toy):
    """Fills the disk of `settings.folder` in round 3: while a client trains, or in the server's update after all
    clients.
    """

    def client_update(self, client: Client, received: Received) -> Update:
        if self.settings.trouble == "clients" and received.round == 2:
            self.fill()
        return super().client_update(client, received)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        if self.settings.trouble == "server" and round == 2:
            self.fill()
        return super().server_update(state, change, round)

    def fill(self) -> None:
        with (Path(self.settings.folder) / f"filler-{os.getpid()}").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))


class FillingUnjudged(Filling):
    """Has no scores and so no best round: checkpoints are written only every `checkpoint_every` rounds."""

    def evaluate(self, data: np.ndarray, received: Received, final: bool) -> Evaluation:
        return Evaluation(Metrics())


@pytest.fixture(scope="module", autouse=True)
def shipped(cluster: None) -> None:
    session.ship(sys.modules[__name__])  # the actors cannot import it


@pytest.mark.nightly
def test_an_actor_that_cannot_start_ends_the_run_at_once(tmp_path: Path) -> None:
    settings = toys.ToySettings(folder=str(tmp_path))
    with pytest.raises(
        RunError, match=r"a client actor died while it started: (.|\n)*LookupError: the lexicon is not on this machine"
    ) as raised:
        toys.run(tmp_path / "run", algorithm=NeverStarts, settings=settings)
    assert "\x1b" not in str(raised.value)
    assert len((tmp_path / "starts").read_text()) <= 2, "actors that cannot start were started again"
    assert RunFolder(tmp_path / "run").saved_rounds() == [] and (tmp_path / "run" / "error.txt").exists()


@pytest.mark.nightly
def test_no_replacements_left(straight: Path, tmp_path: Path) -> None:
    settings = toys.ToySettings(trouble="die once", troubled=("client-02", "client-05"), folder=str(tmp_path))
    with pytest.raises(
        RunError, match=r"a client actor died, and engine\.replacements allows no further one \(0 were replaced\)"
    ):
        toys.run(tmp_path / "run", settings=settings, replacements=0)
    assert RunFolder(tmp_path / "run").rows("failures.jsonl") == [], (
        "a client was blamed for what the run did not allow"
    )
    toys.play(tmp_path / "run")
    same(tmp_path / "run", straight)
    assert not (tmp_path / "run" / "error.txt").exists()


def test_no_data_and_infinite_updates_leave_before_the_mean(tmp_path: Path) -> None:
    """Three of six clients are counted and named; the round is the mean of the other three, computed by hand."""
    deltas, learnt, before = first_round(toys.assignment(tmp_path / "hand"))
    first, second, empty = troubled = tuple(sorted(deltas)[:3])
    options: dict[str, Any] = {
        "settings": toys.ToySettings(troubled=(first, second)),
        "data": OneWithoutData(empty=empty),
    }
    toys.play(tmp_path / "run", rounds=1, algorithm=Overflowing, failures_allowed=0.5, **options)
    (row,), failures = (RunFolder(tmp_path / "run").rows(name) for name in ("metrics.jsonl", "failures.jsonl"))
    reasons = {failure["client"]: failure["reason"] for failure in failures}
    assert len(failures) == row["clients/failed"] == 3 and row["clients/ok"] == 3 and set(reasons) == set(troubled)
    assert all(
        "NaN or infinite values: lower the client's learning rate, or clip" in reasons[client]
        for client in (first, second)
    )
    assert f"client {empty} has no data: raise data.clients.min_utterances, or leave it out" in reasons[empty]
    kept = np.array([delta for client, delta in deltas.items() if client not in troubled], np.float64)
    found = RunFolder(tmp_path / "run").load(1)
    np.testing.assert_allclose(found.state.params, before + kept.mean(axis=0) + learnt, rtol=2e-6, atol=1e-6)
    assert all(found.clients[client].state is None and found.clients[client].failures == 1 for client in troubled)


@pytest.mark.long
def test_a_disk_that_is_full(straight: Path, tmp_path: Path) -> None:
    """A disk that fills while a checkpoint or a client's state is written ends the run and blames no client; with room
    again, the run resumes.
    """
    with small_disk(tmp_path / "disk", "2m") as disk:
        folder = RunFolder(disk / "run")
        for who, file in (
            ("server", r"(checkpoints/round_000003/server\.pt|hypotheses\.json)"),
            ("clients", r"states/client-\d\d/000003\.pt"),
        ):
            settings = toys.ToySettings(trouble=who, folder=str(disk))
            with pytest.raises(
                StorageError, match=rf"disk/run/{file}: cannot be written: No space.*free space there.*`fedray resume`"
            ):
                toys.play(disk / "run", algorithm=Filling, settings=settings)
            assert folder.saved_rounds()[-1] == 2 and folder.load(2).round == 2
            assert folder.rows("failures.jsonl") == [], "a client was blamed for a full disk"
            assert not list((disk / "run").rglob("*.tmp")), "half a file was left"
            for filler in disk.glob("filler-*"):
                filler.unlink()
        toys.play(disk / "run")
        same(disk / "run", straight)


@pytest.mark.long
@pytest.mark.xfail(strict=True, reason="what TensorBoard's writer raises is passed on as it is: no file, no remedy")
def test_a_disk_that_is_full_between_checkpoints(tmp_path: Path) -> None:
    """TensorBoard's events are the first to find no room."""
    with small_disk(tmp_path / "disk", "2m") as disk:
        settings = toys.ToySettings(trouble="server", folder=str(disk))
        with pytest.raises(StorageError, match=r"tensorboard.*: cannot be written: No space"):
            toys.play(disk / "run", algorithm=FillingUnjudged, settings=settings, checkpoint_every=9)


class Unsaved(toys.Toy):
    def export(self, state: ServerState, folder: Path) -> None:
        raise OSError("the model cannot be saved")


def test_a_run_whose_model_cannot_be_saved_has_no_results_and_goes_on(straight: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the model cannot be saved"):
        toys.play(tmp_path, algorithm=Unsaved)
    assert (tmp_path / "predictions.tsv").exists() and not (tmp_path / "results.json").exists()
    toys.play(tmp_path)
    same(tmp_path, straight, 4)


@pytest.mark.parametrize("error", [StorageError("s3://b/run: ACCESS_DENIED"), PermissionError(13, "Permission denied")])
def test_a_node_that_may_not_use_the_run_folder_is_named(cluster: None, error: Exception) -> None:
    class Forbidden:
        place = "s3://b/run"

        def read(self, name: str) -> bytes:
            return b"run"

        def write(self, name: str, data: bytes) -> None:
            raise error

    with pytest.raises(
        RunError, match=r"node [\d.]+ cannot read and write the run folder s3://b/run \(.*(DENIED|denied)"
    ):
        ClientActor._probe(None, Forbidden(), "n")  # type: ignore[arg-type]


def test_a_checkpoint_cut_short_is_named_and_can_be_removed(straight: Path, tmp_path: Path) -> None:
    shutil.copytree(straight, tmp_path / "run")
    newest = tmp_path / "run" / "checkpoints" / "round_000004"
    with (newest / "server.pt").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(
        ValueError, match=rf"{newest}/server\.pt: .*cut short.*: remove .* to continue from the previous checkpoint"
    ) as caught:
        toys.play(tmp_path / "run")
    (said,) = re.findall(r"remove (\S+) to continue", str(caught.value))
    shutil.rmtree(said)
    toys.play(tmp_path / "run")
    same(tmp_path / "run", straight)
