"""Prepares once what trials share: corpus, features, seed models and client states (pseudo-labels)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ray
from ray.exceptions import RayTaskError

from fedray import experiment
from fedray.config.schema import plain
from fedray.core.algorithm import Algorithm
from fedray.core.types import FederatedData, RunError
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.actors.ray_deaths import DEATHS, eviction
from fedray.engine.driver import driver as drivers
from fedray.engine.driver import session
from fedray.engine.driver.driver import Assignment
from fedray.engine.round import cohort as cohorts
from fedray.engine.telemetry.progress import Display
from fedray.experiment import Config, build_data, build_program, read_federation
from fedray.experiment.pretraining import pretrain
from fedray.runs import places
from fedray.runs.folder import RunFolder
from fedray.storage.base import below
from fedray.storage.files import write_whole
from fedray.sweep.space import Space, Values, combinations, options
from fedray.sweep.study import Study, is_key

FOLDER = ".prepare"  # in the experiment's folder, during the preparation
POLL_SECONDS = 0.5


def pretrained(config: Path, folder: Path, overrides: Sequence[str] = ()) -> Path:
    """Finish the pre-training in a folder, with the configuration that it began with; returns its weights.

    If the folder holds no pre-training, one with `config` and `overrides` is run.
    """
    own = folder / "config.yaml"
    with Display.for_terminal() as display:
        asked = (own, []) if own.exists() else (config, overrides)
        return pretrain(*asked, out=folder, progress=display.progress, say=display.say).weights


def transcripts(config: Path, overrides: Sequence[str], file: Path) -> Path:
    """Write the transcripts that a run of this configuration learns tokens and language model from; returns the file.

    One sentence per line: the server's, or the clients' if there is no server data.
    """
    parts, _ = read_federation(*experiment.load(config, overrides))
    sentences = [text for text in parts.get("server", parts["clients"]).column("text") if text]
    write_whole(file, "".join(f"{text}\n" for text in sentences))
    return file


def prepare(study: Study, space: Space, at_once: int) -> None:
    """Fill the caches that the trials read, on all cores.

    If data, seed models or client states depend on a key with a range of values, trials prepare them for themselves.
    """
    federations: dict[str, SpeechData] = {}
    work: dict[tuple[Path | None, Path | None], tuple[Assignment, set[str]]] = {}  # caches -> clients of all cohorts

    def build(values: Values) -> Algorithm:
        config, source = study.config(values)
        described = str([plain(config.data), plain(config.features), plain(config.task)])
        if described not in federations:
            federations[described], _ = build_data(config, source)
        where = places.place(below(study.place, f"{FOLDER}/{len(work)}"))
        program = build_program(config, federations[described], RunFolder(where).states, study.share.gpus)
        cache = (program.init_cache, program.prepare_cache)
        if cache not in work:
            work[cache] = (experiment.assign(config, source, program, study.share, where, {}), set())
        work[cache][1].update(_participants(config, program.data))
        return program.algorithm

    (first_trial,) = combinations(space, [])
    keys = [key for key in space if _matters(key, build(first_trial))]
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
    RunFolder(places.place(study.place)).remove(FOLDER)


def _matters(key: str, algorithm: Algorithm) -> bool:
    """Whether the data, the seed model or the prepared client states depend on a swept key."""
    names = ["data", "features", "task", *algorithm.init_depends, *algorithm.prepare_depends]
    if algorithm.overrides("client_prepare"):
        names += ["cohort", "rounds"]
    return not is_key(key) or any(
        key == name or key.startswith(f"{name}.") or name.startswith(f"{key}.") for name in names
    )


def _participants(config: Config, data: FederatedData) -> set[str]:
    """The clients that a run prepares."""
    ids = data.client_ids()
    if config.engine.prepare == "all":
        return set(ids)
    rounds = (cohorts.sample(ids, config.cohort, data.cost, config.seed, t) for t in range(config.rounds))
    return {client for cohort in rounds for client in cohort}


def _play(queue: Sequence[tuple[Assignment, list[str]]], display: Display) -> None:
    """Prepare several trials in parallel, each on the client actors of a trial; shows their progress."""
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
    except DEATHS as error:
        raise RunError(
            f"the driver that prepares the trials died: {eviction(error) or error}; the same command continues"
        ) from None
    except RayTaskError as error:
        raise session.cause_of(error) from None
    finally:
        for driver, (assignment, _) in zip(started, queue, strict=True):
            session.end(driver, assignment.folder)
