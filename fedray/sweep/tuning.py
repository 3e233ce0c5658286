"""Search, scheduler and Tuner of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler
from ray.tune.search import BasicVariantGenerator, SearchAlgorithm, Searcher

from fedray.core.storage import parent
from fedray.sweep import reserve
from fedray.sweep.study import Study, Sweep, is_grid, options
from fedray.sweep.tables import Board, Csv, Json
from fedray.sweep.trial import Trial

SCHEDULERS = ("fifo", "asha", "pbt")
SEARCHES = ("grid", "random", "optuna")
STATE = "tuner.pkl"  # Tune's own, in the experiment's folder
KEEP = 3  # checkpoints of a trial that Tune can come back to
REDUCTION = 3  # ASHA: one trial in so many goes on at each rung
SEED = 0  # of what is drawn from the space


@dataclass(frozen=True)
class Plan:
    """How the space is searched."""

    space: Mapping[str, Any]
    search: str
    scheduler: str
    samples: int
    at_once: int
    rounds: int


def space_for(space: Mapping[str, Any], search: str) -> dict[str, Any]:
    """The space as the search wants it: a grid is drawn from where the search draws; what is no list cannot stand in a grid."""
    if search == "grid":
        for key, domain in space.items():
            if options(domain) is None:
                raise ValueError(f"--search grid: {key} is drawn from a range, so it has no grid: choose random or optuna")
        return {key: tune.grid_search(options(domain)) for key, domain in space.items()}
    return {key: tune.choice(domain["grid_search"]) if is_grid(domain) else domain for key, domain in space.items()}


def tuner(sweep: Sweep, study: Study, plan: Plan) -> tune.Tuner:
    """A new experiment at `study.place`."""
    storage, name = parent(study.place)
    return tune.Tuner(
        trainable(study),
        param_space=dict(plan.space),
        tune_config=tune.TuneConfig(
            metric=sweep.metric,
            mode=sweep.mode,
            search_alg=_search(sweep, plan),
            scheduler=_scheduler(sweep, plan),
            num_samples=plan.samples,
            max_concurrent_trials=plan.at_once if plan.search == "optuna" else None,  # the other search counts for itself
            reuse_actors=True,
            trial_dirname_creator=_number if plan.scheduler == "pbt" else _number_and_values,
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=storage,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=KEEP, checkpoint_frequency=1),
            failure_config=tune.FailureConfig(max_failures=1),
            callbacks=[Json(), Csv(), Board()],
            verbose=1,
        ),
    )


def again(study: Study, plan: Plan) -> tune.Tuner:
    """The experiment at `study.place` as it was left: finished trials stay, failed ones go on from their checkpoints."""
    return tune.Tuner.restore(study.place, trainable(study), resume_errored=True, param_space=dict(plan.space))


def trainable(study: Study) -> Any:
    return tune.with_resources(tune.with_parameters(Trial, study=study), reserve.group(study.share))


def _search(sweep: Sweep, plan: Plan) -> Searcher | SearchAlgorithm:
    if plan.search != "optuna":
        return BasicVariantGenerator(max_concurrent=plan.at_once, random_state=SEED)
    try:
        from ray.tune.search.optuna import OptunaSearch

        return OptunaSearch(metric=sweep.metric, mode=sweep.mode, seed=SEED)
    except (ImportError, AssertionError) as error:
        raise ValueError("--search optuna needs Optuna: pip install 'fedray[search]'") from error


def _scheduler(sweep: Sweep, plan: Plan) -> TrialScheduler | None:
    if plan.scheduler == "asha":
        grace = max(1, plan.rounds // REDUCTION**2)
        return ASHAScheduler(time_attr="round", max_t=plan.rounds, grace_period=grace, reduction_factor=REDUCTION)
    if plan.scheduler == "pbt":
        mutations = {key: options(domain) or domain for key, domain in plan.space.items()}
        return PopulationBasedTraining(
            time_attr="round",
            perturbation_interval=max(1, plan.rounds // 5),
            hyperparam_mutations=mutations,
            synch=True,  # who takes over from whom depends on the scores, not on which trial is faster
        )
    return None


def _number(trial: Any) -> str:
    return str(trial.trial_id.rpartition("_")[2])


def _number_and_values(trial: Any) -> str:
    """A folder that a person can read; the number makes it different for every trial."""
    values = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in trial.evaluated_params.items())
    safe = "".join(letter if letter.isalnum() or letter in "=,.-" else "_" for letter in values)
    return f"{_number(trial)}_{safe}"[:100].rstrip(",._")
