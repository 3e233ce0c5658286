"""Check the section `attack` of a configuration against the others."""

from __future__ import annotations

from fedray.algorithms import ALGORITHMS
from fedray.core.attackers import Attack, Backdoor, Colluding, Poisoning
from fedray.core.privacy.audits import Canaries, Speakers
from fedray.experiment.config import Config
from fedray.training.classification import Classification
from fedray.training.speech_to_text import SpeechToText
from fedray.training.task import Task


def check_target(attack: Backdoor, task: Task) -> None:
    """Check the target of a backdoor. ValueError: the model can never say it, so that all attackers would fail."""
    if isinstance(task, Classification):
        if attack.target not in task.classes:
            raise ValueError(f"attack.target {attack.target!r} is no class: choose from {', '.join(task.classes)}")
    elif isinstance(task, SpeechToText):
        try:
            task.encode(attack.target)
        except ValueError as error:
            raise ValueError(f"attack.target {attack.target!r}: {error}") from error


def check_attack(config: Config) -> None:
    """Check the section `attack`. ValueError: the attack would do nothing, or cannot be simulated."""
    attack, kind = config.attack, config.algorithm.kind
    if not isinstance(attack, Attack):
        return
    algorithm = ALGORITHMS[kind]
    if algorithm.central or not algorithm.sends_updates:
        why = "trains in one place" if algorithm.central else "sends no updates"
        raise ValueError(f"algorithm.kind {kind} {why}, so nobody can attack it: remove attack")
    if attack.rounds is not None and attack.rounds[0] > config.rounds:
        raise ValueError(f"attack.rounds begins at {attack.rounds[0]}, and the run has {config.rounds} rounds")
    if isinstance(attack, Colluding) and config.engine.placement == "dedicated":
        raise ValueError(
            "attackers that collude are trained by one actor, and engine.placement=dedicated gives each client its "
            "own: set engine.placement=pooled"
        )
    if not isinstance(attack, Poisoning):
        return
    if algorithm.makes_labels:
        raise ValueError(
            f"algorithm.kind {kind} trains on labels that it makes itself, never on those of an attacker: choose an "
            "attack on updates, such as sign_flip"
        )
    if isinstance(config.audit, Canaries | Speakers):
        raise ValueError("attackers' data would be among what an audit judges: remove audit, or remove attack")
    if isinstance(attack, Backdoor):
        if not config.features.reads_audio:
            raise ValueError("a backdoor is a tone in the audio, which features.kind does not read: choose logmel")
        if config.features.by_speaker:
            raise ValueError(
                "a backdoor would change the mean of all features of its speakers under features.normalise=speaker: "
                "choose mean or mean_variance"
            )
        if config.data.corruption.snr_db is not None:
            raise ValueError(
                "a backdoor's utterances have a tone and no noise, so that the lack of noise would be the trigger: "
                "remove data.corruption.snr_db"
            )
        if attack.frequency >= (most := config.features.sample_rate / 2):
            raise ValueError(
                f"attack.frequency={attack.frequency:g} is not below half of features.sample_rate, {most:g} Hz"
            )
