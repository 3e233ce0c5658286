"""Private rounds of the toy: the same bits with any actors and after a resume, bounds, and noise without clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedray.core.privacy.mechanism import Mechanism
from fedray.core.privacy.settings import ClipSettings, Gaussian, Skellam
from fedray.core.types import Change, RunError, ServerState
from fedray.engine.round.cohort import drops_out
from fedray.engine.settings import CohortSettings
from fedray.runs.folder import RunFolder
from tests.engine.privately import private
from tests.engine.runs import first_round, rows, same
from tests.engine.toys import SIZE, Beside, Toy, ToySettings, assignment, play, run

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.long
def test_several_actors_and_a_resume_give_the_same_bits(tmp_path: Path) -> None:
    play(tmp_path / "one", **private())
    play(tmp_path / "resumed", rounds=2, actors=2, **private())
    play(tmp_path / "resumed", actors=2, **private())
    same(tmp_path / "one", tmp_path / "resumed")
    bounds = [row["privacy/bound|first"] for row in rows(tmp_path / "one")]
    assert len(set(bounds)) == len(bounds), "bounds adapt"


@pytest.mark.nightly
def test_five_actors_of_which_one_is_killed_give_the_same_bits(tmp_path: Path) -> None:
    """An actor exits while it trains a client: its lane is trained again, and the noise is drawn once."""
    play(tmp_path / "one", **private())
    trouble = ToySettings(trouble="die once", troubled=("client-01", "client-02"), folder=str(tmp_path))
    run(tmp_path / "five", actors=5, settings=trouble, **private())
    assert list(tmp_path.glob("dead-*"))
    same(tmp_path / "one", tmp_path / "five")


@pytest.mark.long
@pytest.mark.nightly
def test_an_actor_a_client_gives_the_same_bits(tmp_path: Path) -> None:
    play(tmp_path / "pooled", **private())
    play(tmp_path / "dedicated", placement="dedicated", **private())
    same(tmp_path / "pooled", tmp_path / "dedicated")


def test_the_mean_is_that_of_clipped_updates_with_the_noise_of_the_round(tmp_path: Path) -> None:
    mechanism = Mechanism(Gaussian(delta=1e-3, noise=0.5, clip=ClipSettings(norm=3.0)), 0.5, 4)
    options = private() | {"privacy": mechanism}
    deltas, learnt, theta_0 = first_round(assignment(tmp_path / "by hand", **options))
    total = sum(delta * min(1.0, 3.0 / float(np.linalg.norm(delta))) for delta in deltas.values())
    expected = (total + 0.5 * 3.0 * mechanism.draw(SIZE, 7, 0)) / 4
    play(tmp_path / "run", rounds=1, **options)
    found = RunFolder(tmp_path / "run").load(1).state.params
    assert found == pytest.approx(theta_0 + expected + learnt, abs=1e-5)


@pytest.mark.long
def test_whole_numbers_are_read_as_they_were_written_where_clients_have_left(tmp_path: Path) -> None:
    """With Skellam noise, the scale of the numbers is that of the cohort as drawn, whoever answers."""
    mechanism = Mechanism(Skellam(delta=1e-3, noise=0.01, bits=24, clip=ClipSettings(norm=5.0)), 0.01, 6)
    cohort = CohortSettings(size=6, dropout=0.4)
    options = private("skellam") | {"privacy": mechanism, "cohort": cohort}
    deltas, learnt, theta_0 = first_round(assignment(tmp_path / "by hand", **options))
    answered = [delta for client, delta in deltas.items() if not drops_out(client, cohort, 7, 0)]
    play(tmp_path / "run", rounds=1, **options)
    (row,) = rows(tmp_path / "run")
    assert row["clients/ok"] == len(answered) == 6 - row["clients/dropped"] < 6 and row["privacy/opened"] == 1
    total = sum(delta * min(1.0, 5.0 / float(np.linalg.norm(delta))) for delta in answered)
    found = RunFolder(tmp_path / "run").load(1).state.params - theta_0 - learnt
    assert np.std(found - total / 6) == pytest.approx(row["privacy/noise_std"], rel=0.1)


class Counted(Toy):
    """The toy, whose server learns how many clients are expected, not how many answered."""

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        assert change.answered == 4
        return super().server_update(state, change, round)


def test_a_round_without_clients_releases_noise(tmp_path: Path) -> None:
    options = private() | {"cohort": CohortSettings(size=4, sampling="poisson", dropout=0.999), "algorithm": Counted}
    play(tmp_path, rounds=1, **options)
    (row,) = rows(tmp_path)
    assert row["clients/ok"] == 0 and row["privacy/noise_std"] > 0
    assert np.std(RunFolder(tmp_path).load(1).state.params) > 0.1


def test_no_noise_is_repeated_by_resumes(tmp_path: Path) -> None:
    """Rounds in which nobody answers change the model by little more than noise, so their changes do not correlate."""
    options = private() | {"cohort": CohortSettings(size=4, sampling="poisson", dropout=0.999)}
    models = [np.zeros(SIZE)]
    for round in range(1, 5):
        play(tmp_path, rounds=round, **options)
        models.append(RunFolder(tmp_path).load(round).state.params)
    changes = np.diff(models, axis=0)
    assert np.abs(np.corrcoef(changes) - np.eye(4)).max() < 0.15


def test_a_resumed_run_keeps_its_noise_and_its_bounds(tmp_path: Path) -> None:
    """A resumed run keeps both even if another version of the accountant finds another noise multiplier."""
    options = private()
    play(tmp_path, rounds=1, **options)
    play(tmp_path, rounds=2, **options | {"privacy": replace(options["privacy"], noise=5.0)})
    kept = [RunFolder(tmp_path).load(round).private for round in (1, 2)]
    assert [found["noise"] for found in kept] == [0.5, 0.5]
    first, second = (
        {name: of for name, of in row.items() if name.startswith("privacy/bound|")} for row in rows(tmp_path)
    )
    assert second == {f"privacy/{name}": of for name, of in kept[0].items() if name != "noise"} != first


def test_what_travels_beside_the_update_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="sum, count in addition to its delta, which `privacy` does not cover"):
        play(tmp_path, algorithm=Beside, **private())


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["local", "correlated", "skellam"])
def test_every_kind_gives_the_same_bits(tmp_path: Path, kind: str) -> None:
    options = private(kind)
    play(tmp_path / "one", **options)
    play(tmp_path / "resumed", rounds=2, actors=2, **options)
    play(tmp_path / "resumed", actors=2, **options)
    same(tmp_path / "one", tmp_path / "resumed")
    found = rows(tmp_path / "one")
    assert all(row["privacy/noise_std"] > 0 for row in found)
    if kind == "skellam":
        assert all(row["privacy/opened"] == 1 for row in found)
        assert found[0]["traffic/up_bytes"] > 4 * 2 * SIZE, "keys and shares travel with the numbers of 16 bits"
        assert found[0]["traffic/down_bytes"] > 4 * 4 * SIZE, "others' keys and shares come with the broadcast"
