"""Tune's search algorithm, scheduler and Tuner for a sweep."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from importlib.util import find_spec

from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler
from ray.tune.search import BasicVariantGenerator, SearchAlgorithm, Searcher

from fedray.storage.base import parent
from fedray.sweep import reserve
from fedray.sweep.loggers import Board, Csv, Json
from fedray.sweep.space import Space, options
from fedray.sweep.study import Study, Sweep
from fedray.sweep.trial import Trial
from fedray.sweep.waiting import Waiting

SCHEDULERS = ("fifo", "asha", "pbt")
SEARCHES = ("grid", "random", "optuna")
STATE = "tuner.pkl"  # written by Tune to the experiment's folder
KEEP = 3  # checkpoints that Tune keeps per trial
REDUCTION = 3  # ASHA: at each rung the best third of the trials continues
SEED = 0  # of draws from the space

# Tune's advice after Ctrl-C does not hold for sweeps; their own command resumes them.
logging.getLogger("ray.tune.tune").addFilter(lambda record: "Tuner.restore" not in record.getMessage())


@dataclass(frozen=True)
class Plan:
    """How Tune searches the space."""

    space: Space
    search: str
    scheduler: str
    samples: int
    at_once: int
    rounds: int
    every: int  # rounds between two scores of the metric


def tuner(sweep: Sweep, study: Study, plan: Plan) -> tune.Tuner:
    """The Tuner of a new experiment at `study.place`."""
    storage, name = parent(study.place)
    return tune.Tuner(
        trainable(study),
        param_space=dict(plan.space),
        tune_config=tune.TuneConfig(
            metric=sweep.metric,
            mode=sweep.direction,
            search_alg=_search(sweep, plan),
            scheduler=_scheduler(plan),
            num_samples=plan.samples,
            max_concurrent_trials=plan.at_once if plan.search == "optuna" else None,  # other searches limit themselves
            reuse_actors=True,
            trial_dirname_creator=_number if plan.scheduler == "pbt" else _number_and_values,
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=storage,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=KEEP, checkpoint_frequency=1),
            failure_config=tune.FailureConfig(max_failures=1),
            callbacks=[Json(), Csv(), Board(), Waiting(sweep.name)],
            verbose=1,
        ),
    )


def again(study: Study, plan: Plan) -> tune.Tuner:
    """The Tuner of the interrupted experiment at `study.place`; failed trials resume from their checkpoints."""
    return tune.Tuner.restore(study.place, trainable(study), resume_errored=True, param_space=dict(plan.space))


def trainable(study: Study) -> type[Trial]:
    """`Trial` with its study and its resources."""
    found: type[Trial] = tune.with_resources(tune.with_parameters(Trial, study=study), reserve.group(study.share))
    return found


def check_search(search: str) -> None:
    """Raise ValueError if a search needs a package that is not installed."""
    if search == "optuna" and find_spec("optuna") is None:
        raise ValueError("--search optuna needs Optuna: pip install 'fedray[search]'")


def _search(sweep: Sweep, plan: Plan) -> Searcher | SearchAlgorithm:
    if plan.search == "optuna":
        from ray.tune.search.optuna import OptunaSearch

        return OptunaSearch(metric=sweep.metric, mode=sweep.direction, seed=SEED)
    # PBT pauses trials in turn, and a limit would count paused ones: there the reservations alone are the limit.
    return BasicVariantGenerator(max_concurrent=0 if plan.scheduler == "pbt" else plan.at_once, random_state=SEED)


def _scheduler(plan: Plan) -> TrialScheduler | None:
    if plan.scheduler == "asha":
        grace = min(plan.rounds, max(plan.every, plan.rounds // REDUCTION**2))
        rungs = {"max_t": plan.rounds, "grace_period": grace, "reduction_factor": REDUCTION}
        return ASHAScheduler(time_attr="round", **rungs)
    if plan.scheduler == "pbt":
        mutations = {key: options(domain) or domain for key, domain in plan.space.items()}
        return PopulationBasedTraining(
            time_attr="round",
            perturbation_interval=plan.every * max(1, plan.rounds // 5 // plan.every),
            hyperparam_mutations=mutations,
            synch=True,  # the speed of trials has no influence on which trial takes over from which
        )
    return None


def _number(trial: TuneTrial) -> str:
    return str(trial.trial_id.rpartition("_")[2])


def _number_and_values(trial: TuneTrial) -> str:
    """A readable name for a trial's folder; the number makes it unique."""
    values = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in trial.evaluated_params.items())
    safe = re.sub(r"[^A-Za-z0-9=,.-]", "_", values)  # object storage accepts no other characters
    return f"{_number(trial)}_{safe}"[:100].rstrip(",._")
