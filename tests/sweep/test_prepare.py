"""Work before the trials: what trials share is made once for each swept value that changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray import tune

from fedray.core.parallel import serial
from fedray.engine.driver import session
from fedray.engine.driver.driver import Assignment
from fedray.sweep import prepare
from fedray.sweep.space import combinations
from fedray.sweep.study import Study
from tests import speech

Queue = list[tuple[Assignment, list[str]]]


@pytest.fixture
def drafts(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that returns the work that `prepare` hands out for a space, without doing it."""
    (tmp_path / "corpus").mkdir()
    speech.write_corpus(tmp_path / "corpus", speakers=9)
    base = speech.settings(tmp_path / "corpus")
    queue: Queue = []
    monkeypatch.setattr(session, "parallel", serial)
    monkeypatch.setattr(prepare, "_play", lambda together, display: queue.extend(together))

    def drafted(space: dict[str, Any], **changes: Any) -> Queue:
        queue.clear()
        values = yaml.safe_load(yaml.safe_dump({**base, **changes}))
        prepare.prepare(
            Study(str(tmp_path), "base", {"base": values}, {}, [], [], str(tmp_path), "dev/wer", 2), space, at_once=2
        )
        return list(queue)

    return drafted


def test_what_no_swept_key_changes_is_made_once(drafts: Any) -> None:
    (draft,) = drafts({"algorithm.alpha": tune.grid_search([0.1, 0.2]), "algorithm.client.lr": tune.uniform(0.1, 0.2)})
    assert len(draft[1]) > 3  # of the five clients: three rounds draw three each


def test_a_seed_model_for_each_seed_and_none_for_what_is_drawn_from_a_range(drafts: Any) -> None:
    assert len(drafts({"seed": tune.grid_search([0, 1, 2]), "algorithm.alpha": tune.grid_search([0.1, 0.2])})) == 3
    assert len(drafts({"algorithm.pretrain.lr": tune.uniform(0.1, 0.2)})) == 0


def test_labels_for_all_clients_that_any_trial_draws(drafts: Any) -> None:
    few, many = (drafts({"cohort.size": tune.grid_search(sizes)})[0][1] for sizes in ([1], [1, 5]))
    assert set(few) < set(many)


def test_combinations_keep_the_other_keys_at_one_value() -> None:
    space = {"a.b": tune.grid_search([1, 2]), "c.d": tune.grid_search([3, 4]), "e.f": tune.uniform(0, 1)}
    found = list(combinations(space, ["a.b"]))
    assert [(values["a.b"], values["c.d"]) for values in found] == [(1, 3), (2, 3)]
    assert len({values["e.f"] for values in found}) == 1
