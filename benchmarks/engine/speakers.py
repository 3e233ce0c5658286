"""Part of the engine's benchmark: 4,000 embedded speakers, 7 % of them a round, then all of them in one round."""

from __future__ import annotations

from pathlib import Path

from benchmarks import study
from benchmarks.engine import runs
from benchmarks.engine.runs import Played
from fedray.engine.driver.driver import Assignment

CONFIG = study.ROOT / "configs" / "fednst" / "baselines" / "sfl.yaml"


def assignment(folder: Path, speakers: int, utterances: int, cohort: int, rounds: int, actors: int) -> Assignment:
    """A supervised federation of small Conformers from random weights, which cost as much as trained ones."""
    made = {
        "client_speakers": speakers,
        "client_utterances": utterances,
        "server_speakers": 10,
        "dev_speakers": 4,
        "test_speakers": 4,
    }
    overrides = [f"data.options.{name}={value}" for name, value in made.items()]
    overrides += [
        "data.options.test_server_speakers=0",
        "algorithm.pretrain.steps=0",
        "algorithm.alpha=0",
        "evaluation.every=100",
    ]
    overrides += [f"cohort.size={cohort}", f"rounds={rounds}", f"engine.actors={actors}"]
    return runs.configured(CONFIG, overrides, folder)


def play(folder: Path, speakers: int, utterances: int, cohort: int, rounds: int, actors: int) -> Played:
    with runs.ray_here():
        return runs.play(assignment(folder, speakers, utterances, cohort, rounds, actors), period=1.0)
