"""Attacks and defences of benchmarks.studies.attacks, and a run of an arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from statistics import mean
from typing import Any

import fedray
from benchmarks import study
from fedray.report.bootstrap import Counts

MEAN = "mean"
COHORT = 10


@dataclass(frozen=True)
class Task:
    """What is attacked. `training`: the configuration's, which another kind of algorithm drops.

    `last`: scores are those of the last round, not of the best one by dev. A run that starts from a seed model would
    otherwise hide an attack behind its first rounds. `without`: defences and attacks that do not run.
    """

    config: str
    rounds: int
    clients: int  # of whom COHORT take part in a round
    target: str  # of the backdoor
    training: str
    about: str
    bound: float  # on the norm of an update
    last: bool = False
    without: tuple[str, ...] = ()


KEYWORDS = Task(
    "configs/attacks/keywords.yaml", 60, 50, "stop",
    "client: {lr: 0.6, batch: 8, epochs: 2, clip: 5}, server: {lr: 0.3, batch: 8}, pretrain: {steps: 0}",
    "Embedded keywords, CRNN-Lite, 50 clients, ten a round. Test accuracy of the best round in percent; chance is 10.",
    bound=1.0,
)  # fmt: skip
RECOGNISER = Task(
    "configs/attacks/recognition.yaml", 30, 60, "play music",
    "client: {lr: 0.25, batch: 6, epochs: 2, clip: 5}, server: {lr: 0.1, batch: 6, utterances: 60, clip: 5}, "
    "pretrain: {steps: 2600, lr: 3e-3, warmup: 100, batch: 8}",
    "Embedded sentences, a Conformer with CTC, 60 clients, ten a round, from a seed model. Test scores are 100 - WER,\n"
    "of the last round. The speech that FLTrust and the reserve set train on is that of the seed model.",
    bound=2.0,  # honest updates of seed 7 have norms of 1.5 to 2.7
    last=True,
    without=(
        "trimmed mean", "LPA", "centred clipping", "reserve set", "server alone", "noise", "min-max", "label flips",
    ),
)  # fmt: skip
RESERVE = "algorithm={kind: reverb, schedule: {kind: cosine}, buffers: frozen, TRAINING}"
DEFENCES = {  # what each knows: nobody is told the share, so those that need a bound assume 30 %
    MEAN: ["strategy={kind: uniform}"],
    "norm bound": ["strategy={kind: uniform, clip_norm: BOUND}"],
    "median": ["strategy={kind: median}"],
    "trimmed mean": ["strategy={kind: trimmed_mean, trim: 0.3}"],
    "Multi-Krum": ["strategy={kind: krum, byzantine: 0.3, select: 7}"],
    "LPA": ["strategy={kind: layerwise_pruning, pruning: 0.3}"],
    "geometric median": ["strategy={kind: geometric_median}"],
    "centred clipping": ["strategy={kind: centred_clipping}"],
    "FLTrust": ["strategy={kind: fltrust}"],
    "reserve set": ["strategy={kind: uniform}", RESERVE],
    "norm-bounded reserve": ["strategy={kind: uniform, clip_norm: BOUND}", RESERVE],
}
ALONE = "server alone"  # trained on the server's data as a client trains on its own
SETTINGS = DEFENCES | {
    ALONE: ["strategy={kind: uniform}", "data.clients={by: server}", "cohort={size: 1}", "engine.lanes=1"]
}
ATTACKS = {
    "sign flip": ["{kind: sign_flip, scale: 1", "{kind: sign_flip, scale: 5"],
    "noise": ["{kind: noise, scale: 1", "{kind: noise, scale: 5"],
    "ALIE": ["{kind: alie, z: 0.5", "{kind: alie, z: 1.5"],
    "inner product": ["{kind: inner_product, scale: 0.5", "{kind: inner_product, scale: 5"],
    "min-max": ["{kind: min_max", "{kind: min_max, direction: unit"],
    "label flips": ["{kind: label_flips, scale: 1", "{kind: label_flips, scale: 5"],
    "backdoor": ["{kind: backdoor, target: TARGET, scale: 3"],
}
NOBODY, BACKDOOR, SUCCESS = "nobody", "backdoor", "its success"
SHARES = (0.1, 0.3)
Run = dict[str, Any]


def arm_of(defence: str, attack: str = NOBODY, share: float = 0.0, strength: int = 0) -> str:
    """The name of an arm."""
    return f"{defence}, {NOBODY}" if attack == NOBODY else f"{defence}, {100 * share:g} %, {attack} {strength + 1}"


def arms(task: Task) -> dict[str, str]:
    """Arm -> the attack's section. First come the runs without attackers, then a larger share before a smaller one."""
    settings, defences, attacks = (
        [one for one in each if one not in task.without] for each in (SETTINGS, DEFENCES, ATTACKS)
    )
    return {arm_of(defence): "none" for defence in settings} | {
        arm_of(defence, attack, share, strength): f"{section}, share: {share:g}}}"
        for share, attack, defence in product(sorted(SHARES, reverse=True), attacks, defences)
        for strength, section in enumerate(ATTACKS[attack])
    }


ARMS = arms(KEYWORDS)  # all of them


def overrides(arm: str, lr: float, seed: int, task: Task) -> list[str]:
    """The overrides of a run. `lr`: the server's rate."""
    given = [*SETTINGS[arm.partition(", ")[0]], f"attack={ARMS[arm]}", f"server_optimizer.lr={lr:g}"]
    for name, value in {"TRAINING": task.training, "TARGET": task.target, "BOUND": f"{task.bound:g}"}.items():
        given = [one.replace(name, value) for one in given]
    return [*given, f"seed={seed}", f"data.seed={seed}", f"rounds={task.rounds}"]


def described(arm: str, lr: float, seed: int, task: Task) -> dict[str, Any]:
    """All on which a run depends."""
    return {"config": task.config, "overrides": overrides(arm, lr, seed, task), "last": task.last}


def play(arm: str, lr: float, seed: int, task: Task) -> Run:
    """The scores of a run's best or last round, and its right answers by speaker. `lr`: the server's rate."""
    bench = fedray.open(study.ROOT / task.config, overrides(arm, lr, seed, task))
    state = start = best = bench.start()
    dev, now = -inf, None
    for _ in range(task.rounds):
        state, row = bench.step(state)
        if (now := score(row, "dev")) is not None and now > dev:
            dev, best = now, state
    scored, of_scored = (state, now) if task.last else (best, dev)
    test = bench.evaluate(scored, "test", final=True)
    found = {"seed": seed, "rate": lr, "dev": of_scored, "test": score(test.metrics, "test"), "round": best.round}
    if task.last and arm == arm_of(MEAN):
        found["start"] = score(bench.evaluate(start, "test", final=True).metrics, "test")
    if BACKDOOR in bench.data.splits():
        fooled = [row["errors"] == 0 for row in bench.evaluate(scored, BACKDOOR, final=True).predictions]
        found["success"] = 100 * mean(fooled)
    found["counts"] = study.packed(right_by_speaker(test.predictions))
    return found


def score(row: Mapping[str, Any], split: str) -> float | None:
    """Accuracy, or 100 - WER; None: the split was not scored."""
    if row.get(f"{split}/accuracy") is not None:
        return float(row[f"{split}/accuracy"])
    wer = row.get(f"{split}/wer")
    return None if wer is None else 100 - wer


def right_by_speaker(rows: Sequence[Mapping[str, Any]]) -> Counts:
    """Speaker -> (clips, right answers), or (words, words - errors)."""
    if "words" not in rows[0]:
        return study.right_by("speaker", rows)
    return {speaker: (words, words - errors) for speaker, (words, errors) in study.by_speaker(rows).items()}
