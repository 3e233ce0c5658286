"""What does not depend on the swept keys is made once, before the trials: corpus, features, seed models, client states (labels)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from fedray import experiment, runs
from fedray.core.algorithm import Algorithm
from fedray.core.config import plain
from fedray.core.storage import below
from fedray.core.types import FederatedData, RunError
from fedray.data.federated import SpeechData
from fedray.engine import cohort as cohorts
from fedray.engine import driver as drivers
from fedray.engine import session
from fedray.engine.driver import Assignment
from fedray.engine.folder import RunFolder
from fedray.engine.progress import Display
from fedray.experiment import Config
from fedray.programs import build_data, build_program
from fedray.sweep.study import Study, combinations, is_key, options

FOLDER = ".prepare"  # of the experiment, while it lasts
POLL_SECONDS = 0.5


def prepare(study: Study, space: Mapping[str, Any], at_once: int) -> None:
    """Fill the caches that the trials read, on all cores. What changes with a key that is no list of values is left to the trials."""
    federations: dict[str, SpeechData] = {}
    work: dict[tuple[Path | None, Path | None], tuple[Assignment, set[str]]] = {}  # by cache: the clients that the rounds draw

    def build(values: Mapping[str, Any]) -> Algorithm:
        config, source = study.config(values)
        described = str([plain(config.data), plain(config.features), plain(config.task)])
        if described not in federations:
            federations[described], _ = build_data(config, source)
        where = runs.place(below(study.place, f"{FOLDER}/{len(work)}"))
        program = build_program(config, federations[described], RunFolder(where), study.share.gpus)
        cache = (program.init_cache, program.prepare_cache)
        if cache not in work:
            work[cache] = (experiment.assign(config, program, study.share, where, {}), set())
        work[cache][1].update(_drawn(config, program.data))
        return program.algorithm

    (anyone,) = combinations(space, [])
    keys = [key for key in space if _matters(key, build(anyone))]
    if any(options(space[key]) is None for key in keys):
        return
    for values in combinations(space, keys):
        build(values)
    queue = [(assignment, sorted(clients)) for cache, (assignment, clients) in work.items() if cache != (None, None)]
    with Display.for_terminal() as display:
        for first in range(0, len(queue), at_once):
            together = queue[first : first + at_once]
            share = replace(study.share, actors=study.share.actors * at_once // len(together))
            _play([(replace(assignment, share=share), clients) for assignment, clients in together], display)
    RunFolder(runs.place(study.place)).remove(FOLDER)


def _matters(key: str, algorithm: Algorithm) -> bool:
    """Whether theta_0, the client states, who gets one, or the data depend on a swept key."""
    names = ["data", "features", "task", *algorithm.init_depends, *algorithm.prepare_depends]
    if algorithm.overrides("client_prepare"):
        names += ["cohort", "rounds"]
    return not is_key(key) or any(key == name or key.startswith(f"{name}.") or name.startswith(f"{key}.") for name in names)


def _drawn(config: Config, data: FederatedData) -> set[str]:
    ids = data.client_ids()
    if config.engine.prepare == "all":
        return set(ids)
    return {client for t in range(config.rounds) for client in cohorts.sample(ids, config.cohort, data.cost, config.seed, t)}


def _play(queue: Sequence[tuple[Assignment, list[str]]], display: Display) -> None:
    """These side by side, each on the client actors of a trial."""
    started = [drivers.start(assignment) for assignment, _ in queue]
    seen = [0] * len(started)
    try:
        waiting = [driver.prepare.remote(clients) for driver, (_, clients) in zip(started, queue, strict=True)]
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_SECONDS)
            for place, driver in enumerate(started):
                for event in ray.get(driver.events.remote(seen[place], 0.0)):
                    display.show(event)
                    seen[place] = event.number + 1
            ray.get(done)
    except RayActorError as error:
        raise RunError(f"the driver that prepares the trials died: {error}; the same command goes on") from None
    except RayTaskError as error:
        raise session.cause_of(error) from None
    finally:
        for driver in started:
            ray.kill(driver)
