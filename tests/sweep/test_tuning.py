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
    plan = tuning.Plan(space, search, "asha", samples=4, at_once=2, rounds=27, every=1)
    tuning.tuner(sweep, SimpleNamespace(place="/results/s"), plan)  # type: ignore[arg-type]
    config = told["tune_config"]
    assert (config.metric, config.mode) == (metric, mode)
    if search == "optuna":
        assert (config.search_alg.metric, config.search_alg.mode) == (metric, mode)


@pytest.mark.parametrize(
    ("rounds", "every", "grace", "interval"), [(27, 1, 3, 5), (27, 5, 5, 5), (60, 5, 6, 10), (3, 9, 3, 9)]
)
def test_trials_are_compared_only_after_a_score(
    told: dict[str, Any], rounds: int, every: int, grace: int, interval: int
) -> None:
    sweep = Sweep(name="s", question="?", base="b.yaml", space={"rounds": tune.choice([1, 2])})
    for scheduler in ("asha", "pbt"):
        plan = tuning.Plan(sweep.space, "random", scheduler, samples=4, at_once=2, rounds=rounds, every=every)
        tuning.tuner(sweep, SimpleNamespace(place="/results/s"), plan)  # type: ignore[arg-type]
        found = told["tune_config"].scheduler
        if scheduler == "asha":
            assert min(found._brackets[0]._rungs, key=lambda rung: rung[0])[0] == grace
        else:
            assert found._perturbation_interval == interval


@pytest.mark.parametrize(("scheduler", "limit"), [("fifo", 2), ("pbt", 0)])
def test_a_population_is_limited_by_its_reservations(told: dict[str, Any], scheduler: str, limit: int) -> None:
    """A limit on live trials counts the paused ones of PBT, and would shrink its population."""
    sweep = Sweep(name="s", question="?", base="b.yaml", space={"algorithm.client.lr": tune.loguniform(0.01, 1)})
    plan = tuning.Plan(sweep.space, "random", scheduler, samples=4, at_once=2, rounds=5, every=1)
    tuning.tuner(sweep, SimpleNamespace(place="/results/s"), plan)  # type: ignore[arg-type]
    assert told["tune_config"].search_alg.max_concurrent == limit


def test_a_search_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "find_spec", lambda name: None)
    tuning.check_search("random")
    with pytest.raises(ValueError, match=r"--search optuna needs Optuna: pip install 'fedray\[search\]'"):
        tuning.check_search("optuna")
