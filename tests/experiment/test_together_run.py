"""End-to-end runs that train clients together: the same bits for any number of actors, after a death and a resume."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import fedray
from tests import speech
from tests.engine.runs import an_actor_dies, cut_short, rows, same

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.long]


def settings(corpus: Path, actors: int, vectorise: int | str = 2) -> dict[str, Any]:
    engine = {"lanes": 2, "actors": actors, "cpus_per_client": 0.5, "vectorise": vectorise}
    return speech.settings(corpus, rounds=3, cohort={"size": 5}, engine=engine)


@pytest.fixture(scope="module")
def straight(corpus: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> Path:
    folder = fedray.run(settings(corpus, 1), out=tmp_path_factory.mktemp("straight") / "run").folder
    assert isinstance(folder, Path)
    return folder


@pytest.mark.nightly
def test_two_actors_of_which_one_is_killed_give_the_same_bits(
    straight: Path, corpus: Path, tmp_path: Path, on_ray: None
) -> None:
    folder = tmp_path / "run"
    killed = an_actor_dies(folder)
    fedray.run(settings(corpus, 2), out=folder)
    assert killed
    same(folder, straight, 3)


def test_a_resume_gives_the_same_bits_and_another_setting_is_refused(straight: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(straight, tmp_path / "run")
    cut_short(folder, 3)
    with pytest.raises(ValueError, match="engine.vectorise"):
        fedray.resume(folder, ["engine.vectorise=never"])
    fedray.resume(folder)
    same(folder, straight, 3)


def test_one_after_the_other_learns_alike(straight: Path, corpus: Path, tmp_path: Path) -> None:
    """Clients trained one by one get other dropout masks, so the numbers differ, but not by much."""
    alone = fedray.run(settings(corpus, 1, "never"), out=tmp_path / "run").folder
    for ours, theirs in zip(rows(straight), rows(alone), strict=True):
        assert ours["train/loss"] == pytest.approx(theirs["train/loss"], rel=0.1) and ours != theirs
