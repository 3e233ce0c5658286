"""The arguments that Tune gets for a sweep."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fedray.sweep import Sweep, tune, tuning


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of the Tuner, filled in when it is made."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(tuning, "trainable", lambda study: "trial")
    monkeypatch.setattr(tuning.tune, "Tuner", lambda trial, **arguments: found.update(arguments))
    monkeypatch.setattr("ray.tune.search.optuna.OptunaSearch", SimpleNamespace)  # Optuna need not be installed
    return found


@pytest.mark.parametrize(("metric", "mode"), [("dev/wer", "min"), ("dev/accuracy", "max")])
@pytest.mark.parametrize("search", ["grid", "optuna"])
@pytest.mark.parametrize("given", [True, False])
def test_trials_are_ranked_by_the_metric_of_the_sweep(
    told: dict[str, Any], metric: str, mode: str, search: str, given: bool
) -> None:
    """A search that learns from earlier trials gets the same metric and mode."""
    space = {"rounds": tune.choice([1, 2])}
    sweep = Sweep(name="s", question="?", base="b.yaml", space=space, metric=metric, mode=mode if given else None)
    plan = tuning.Plan(space, search, "asha", samples=4, at_once=2, rounds=27)
    tuning.tuner(sweep, SimpleNamespace(place="/results/s"), plan)  # type: ignore[arg-type]
    config = told["tune_config"]
    assert (config.metric, config.mode) == (metric, mode)
    if search == "optuna":
        assert (config.search_alg.metric, config.search_alg.mode) == (metric, mode)
