"""Attacks against defences on embedded keywords: accuracy under attack, a backdoor's success, cost without attackers.

    python -m benchmarks.studies.attacks [--shares 0.1 0.3] [--attacks ALIE ...] [--defences median ...]
                                         [--seeds 0 1 2] [--rounds 60] [--actors 1] [--runs DIR]

50 clients, ten a round (configs/attacks/keywords.yaml). An attack has several strengths; that with the lowest mean dev
accuracy over seeds counts, for each defence by itself, as an attacker who knows the defence would choose. Test accuracy
is that of the best round by dev. A backdoor's success is the share of test clips, of words other than its target, that
its tone turns into the target. Writes benchmarks/results/attacks.md and .json. The same command resumes; finished runs
are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import study

CONFIG = "configs/attacks/keywords.yaml"
MEAN = "mean"
TRAINING = (  # the configuration's, which another kind of algorithm drops
    "schedule: {kind: cosine}, client: {lr: 0.3, batch: 8, epochs: 2, clip: 5}, server: {lr: 0.3, batch: 8}, "
    "buffers: frozen, pretrain: {steps: 0}"
)
DEFENCES = {  # what each knows: nobody is told the share, so those that need a bound assume 30 %
    MEAN: ["strategy={kind: uniform}"],
    "norm bound": ["strategy={kind: uniform, clip_norm: 1.0}"],
    "median": ["strategy={kind: median}"],
    "trimmed mean": ["strategy={kind: trimmed_mean, trim: 0.3}"],
    "Multi-Krum": ["strategy={kind: krum, byzantine: 0.3, select: 7}"],
    "LPA": ["strategy={kind: layerwise_pruning, pruning: 0.3}"],
    "geometric median": ["strategy={kind: geometric_median}"],
    "centred clipping": ["strategy={kind: centred_clipping}"],
    "FLTrust": ["strategy={kind: fltrust}"],
    "reserve set": ["strategy={kind: uniform}", f"algorithm={{kind: reverb, {TRAINING}}}"],
}
ATTACKS = {
    "sign flip": ["{kind: sign_flip, scale: 1", "{kind: sign_flip, scale: 5"],
    "noise": ["{kind: noise, scale: 1", "{kind: noise, scale: 5"],
    "ALIE": ["{kind: alie, z: 0.5", "{kind: alie, z: 1.5"],
    "inner product": ["{kind: inner_product, scale: 0.5", "{kind: inner_product, scale: 5"],
    "min-max": ["{kind: min_max", "{kind: min_max, direction: unit"],
    "label flips": ["{kind: label_flips, scale: 1", "{kind: label_flips, scale: 5"],
    "backdoor": ["{kind: backdoor, target: stop, scale: 3"],
}
NOBODY, BACKDOOR = "nobody", "backdoor"
Run = dict[str, Any]


def play(defence: str, attack: str | None, seed: int, settings: Sequence[str], out: Path) -> Run:
    """The scores of a run's best round, and its right answers by speaker. `attack`: the section, None: no attack."""
    print(out, flush=True)
    overrides = [f"seed={seed}", f"data.seed={seed}", *DEFENCES[defence], f"attack={attack or 'none'}", *settings]
    best = study.run(CONFIG, overrides, out)["best"]
    scores = {"seed": seed, "dev": best["dev/accuracy"], "test": best["test/accuracy"], "round": best["round"]}
    success = {"success": best["backdoor/accuracy"]} if "backdoor/accuracy" in best else {}
    return scores | success | {"counts": study.right_by("speaker", study.predictions(out, "best"))}


def worst(strengths: Sequence[Sequence[Run]]) -> Sequence[Run]:
    """The runs of the strength that an attacker would choose: the lowest mean accuracy on dev."""
    return min(strengths, key=lambda runs: mean(run["dev"] for run in runs))


def tables(found: Mapping[str, Mapping[str, Sequence[Run]]], rounds: int) -> str:
    """Accuracies, then changes under attack with intervals. `found`: defence -> attack -> runs."""
    accuracies, changes = [], []
    for defence, attacks in found.items():
        clean, row, change = attacks[NOBODY], {"defence": defence}, {"defence": defence}
        for attack, runs in attacks.items():
            row[attack] = study.spread([run["test"] for run in runs])
            if attack == BACKDOOR:
                row["its success"] = study.spread([run["success"] for run in runs])
            if attack != NOBODY:
                change[attack] = points(clean, runs)
        lowest = min((mean(run["test"] for run in runs), attack) for attack, runs in attacks.items())
        row["lowest"] = f"{lowest[0]:.1f} ({lowest[1]})"
        change["cost without attackers"] = "" if defence == MEAN or MEAN not in found else points(
            found[MEAN][NOBODY], clean
        )  # fmt: skip
        late = study.best_rounds([run["round"] for run in clean], [rounds] * len(clean))
        accuracies.append(row | {"best rounds, nobody": late})
        changes.append(change)
    return f"{study.table(accuracies)}\n\nThe change under attack, in points:\n\n{study.table(changes)}\n"


def points(before: Sequence[Run], after: Sequence[Run]) -> str:
    return str(study.change([run["counts"] for run in before], [run["counts"] for run in after], "points"))


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-attacks", rounds=60)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.3], help="of the clients that attack")
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--defences", nargs="+", choices=list(DEFENCES), default=list(DEFENCES))
    chosen = parser.parse_args()
    settings = [f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]

    def runs(defence: str, attack: str | None, name: str) -> list[Run]:
        places = {seed: chosen.runs / f"seed-{seed}" / name / study.folder_name(defence) for seed in chosen.seeds}
        return [play(defence, attack, seed, settings, place) for seed, place in places.items()]

    text = "# Attacks against defences\n\n"
    text += f"Embedded keywords, CRNN-Lite, 50 clients, ten a round, {chosen.rounds} rounds. Test accuracy in percent, "
    text += (
        "mean ± SD over seeds; ten words, so\nchance is 10. Of each attack's strengths, the one that hurts a defence "
    )
    text += "most on dev counts. `its success`: clips of other words that\nthe backdoor's tone turns into its target. "
    text += "Differences have 95 % intervals from a paired bootstrap over speakers.\n"
    clean = {defence: runs(defence, None, NOBODY) for defence in chosen.defences}
    numbers = {}
    for share in chosen.shares:
        found: dict[str, dict[str, Sequence[Run]]] = {defence: {NOBODY: clean[defence]} for defence in chosen.defences}
        for attack in chosen.attacks:
            for defence in chosen.defences:
                strengths = [
                    runs(defence, f"{section}, share: {share:g}}}", f"{share:g}-{study.folder_name(attack)}-{number}")
                    for number, section in enumerate(ATTACKS[attack])
                ]
                found[defence][attack] = worst(strengths)
        text += f"\n## {100 * share:g} % of the clients attack\n\n{tables(found, chosen.rounds)}"
        numbers[f"{share:g}"] = {
            defence: {attack: [run | {"counts": None} for run in runs] for attack, runs in attacks.items()}
            for defence, attacks in found.items()
        }
    print(text)
    if len(chosen.seeds) > 1:
        study.write("attacks", text, {"found": numbers}, study.command(parser, chosen), chosen.seeds)


if __name__ == "__main__":
    main()
