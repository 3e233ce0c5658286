"""After a power loss, a run resumes from a whole checkpoint, whatever the disk had not yet written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedray.runs.client_states import ClientStore
from fedray.runs.folder import METRICS, RunFolder
from tests.engine.runs import same
from tests.power.disk import LOSSES, Disk, Loss, at_random
from tests.power.play import ROUNDS, Player
from tests.power.shim import Call, Shim


@dataclass(frozen=True)
class Played:
    """An undisturbed run, and the log of its calls."""

    folder: Path
    calls: list[Call]
    play: Player


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, shim: Shim, play: Player) -> Played:
    folder = tmp_path_factory.mktemp("power") / "run"
    shim.watch(folder, log=True)
    assert play(folder, "two actors") == {}
    shim.stop()
    return Played(folder, list(shim.calls(folder)), play)


def check(folder: Path, committed: int, states: dict[str, bytes]) -> int | None:
    """The round that the run would resume from, None for the beginning. All checkpoints and rows must be whole."""
    run = RunFolder(folder)
    store = ClientStore(folder / "states")
    saved = run.saved_rounds()
    assert max(saved, default=-1) >= committed, f"round {committed} was committed, and the disk has {saved}"
    for round in saved:
        for client, state in run.load(round).files():
            name = store.name(client, state.version)
            found = folder / "states" / name
            assert found.exists(), f"{name} is missing, and round {round} needs it"
            assert found.read_bytes() == states[name], f"{name} is damaged, and round {round} needs it"
    if not saved:
        return None
    rows = [row["round"] for row in run.rows(METRICS)]
    assert rows[: saved[-1]] == list(range(1, saved[-1] + 1)), f"rows {rows} before round {saved[-1]}"
    return saved[-1]


def written_states(calls: list[Call]) -> dict[str, bytes]:
    """Every client state that was ever written, by its name."""
    disk, found = Disk(), {}
    for call in calls:
        disk.apply(call)
        if call.name == "rename" and call.second.startswith("states/"):
            found[call.second.removeprefix("states/")] = disk.files()[call.second]
    return found


def crashes(played: Played, scratch: Path, losses: dict[str, Loss], every: int = 1) -> Iterator[tuple[str, Path]]:
    """Check and yield the folders that a power loss leaves after each call, with words for when and what it took."""
    disk, states, rows = Disk(), written_states(played.calls), 0
    for number, call in enumerate(played.calls):
        disk.apply(call)
        rows += call.name == "write" and call.path == METRICS
        if number % every:
            continue
        for title, loss in losses.items():
            folder = scratch / "after"
            shutil.rmtree(folder, ignore_errors=True)
            disk.after(loss, folder)
            words = f"the power goes after call {number} ({call.name} {call.path} {call.second}) and takes {title}"
            try:
                check(folder, rows - 1, states)
            except (AssertionError, ValueError, OSError) as error:
                raise AssertionError(f"{words}: {error}") from error
            yield words, folder


@pytest.mark.nightly
def test_the_log_is_complete(played: Played) -> None:
    disk = Disk()
    for call in played.calls:
        disk.apply(call)
    there = {
        path.relative_to(played.folder).as_posix(): path.read_bytes()
        for path in played.folder.rglob("*")
        if path.is_file()
    }
    assert disk.files() == there


@pytest.mark.nightly
def test_whenever_the_power_goes_the_run_goes_on_from_a_whole_checkpoint(played: Played, tmp_path: Path) -> None:
    assert sum(1 for _ in crashes(played, tmp_path, LOSSES, every=3)) > 200


@pytest.mark.nightly
def test_also_when_each_folder_and_each_file_loses_something_else(played: Played, tmp_path: Path) -> None:
    losses = LOSSES | {f"what seed {seed} takes": at_random(seed) for seed in range(8)}
    assert sum(1 for _ in crashes(played, tmp_path, losses)) > 200


@pytest.mark.nightly
def test_the_run_that_goes_on_has_the_same_bits(played: Played, tmp_path: Path) -> None:
    """A run that is resumed after the worst losses, at a few moments, ends with the same bits."""
    worst, every = dict(list(LOSSES.items())[:2]), len(played.calls) // 5 + 1
    for number, (words, folder) in enumerate(crashes(played, tmp_path, worst, every)):
        if number >= len(worst):  # not those of the first call
            going_on = folder.rename(tmp_path / f"resumed-{number}")
            assert played.play(going_on, "two actors") == {}, words
            same(going_on, played.folder, ROUNDS)
