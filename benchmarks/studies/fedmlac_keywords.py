"""FedMLAC against FedAvg, FedProx and FedOpt on embedded keywords: clean, noise, wrong labels, ablations; three seeds.

    python -m benchmarks.studies.fedmlac_keywords [--seeds 0 1 2] [--runs runs/study-fedmlac]
                                                  [--only clean noise labels ablation ...]

Scores are means over the personal models of all clients that took part, on a common test set of new speakers. The same
command resumes; finished runs are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.studies import passed_on

METHODS = {
    "FedAvg": "baselines/fedavg",
    "FedProx": "baselines/fedprox",
    "FedOpt": "baselines/fedopt",
    "FedMLAC": "embedded",
}
SCORING = [
    "evaluation.every=10",
    "evaluation.personal_every=0",
    "evaluation.personal_final_utterances=400",
]  # personal models are scored at the end, on half of test
Arm = tuple[str, list[str]]  # configuration, overrides


def arms() -> dict[str, dict[str, Arm]]:
    """Part -> arm -> configuration and overrides."""
    methods: dict[str, Arm] = {name: (file, []) for name, file in METHODS.items()}
    some = ["data.corruption={label_errors: 1.0, clients: 0.3}"]
    worse = {"noise": "data.corruption.snr_db=10", "labels": "data.corruption.label_errors=0.5"}
    return {
        "clean": methods | {"one model, passed on": ("passed_on", [])},
        "noise": {name: (file, [worse["noise"]]) for name, (file, _) in methods.items()},
        "labels": {name: (file, [worse["labels"]]) for name, (file, _) in methods.items()},
        "ablation": {
            "w/o mutual learning (one shared CRNN-Base)": ("ablations/without_mutual", []),
            "isolated (no KL)": ("ablations/isolated", []),
            "w/o LPA": ("ablations/without_lpa", []),
            "w/o LPA, 50 % wrong labels": ("ablations/without_lpa", [worse["labels"]]),
        },
        "some-clients": {  # 30 % of the clients have only wrong labels
            "FedMLAC": ("embedded", some),
            "w/o LPA": ("ablations/without_lpa", some),
        },
    }


def play(part: str, arm: str, seed: int, runs: Path) -> dict[str, Any]:
    """The results of a run."""
    config, overrides = arms()[part][arm]
    if config == "passed_on":
        config, overrides = "embedded", [*passed_on.overrides(1), *overrides]
    out = runs / f"seed-{seed}" / part / study.folder_name(arm)
    print(f"seed {seed}, {part}, {arm}: {out}", flush=True)
    return study.run(f"configs/fedmlac/{config}.yaml", [f"seed={seed}", f"data.seed={seed}", *SCORING, *overrides], out)


def table(found: dict[str, dict[str, list[dict[str, Any]]]], part: str) -> str:
    """Accuracy in percent; a drop is the difference from the same seed without noise or wrong labels."""
    rows = []
    for arm, results in found[part].items():
        personal = [one["personal"]["test/accuracy"] for one in results]
        row = {
            part: arm,
            "personal models": study.spread(personal),
            "macro-F1": study.spread([one["personal"]["test/macro_f1"] for one in results]),
        }
        row["SD over clients"] = study.spread([one["personal"]["test/accuracy_sd"] for one in results])
        row["shared model"] = study.spread([one["best"]["test/accuracy"] for one in results])
        if part in ("noise", "labels") and arm in found.get("clean", {}):
            clean = [one["personal"]["test/accuracy"] for one in found["clean"][arm]]
            row["drop, personal"] = study.spread(
                [before - after for before, after in zip(clean, personal, strict=True)]
            )
            shared = [one["best"]["test/accuracy"] for one in found["clean"][arm]]
            after = [one["best"]["test/accuracy"] for one in results]
            row["drop, shared"] = study.spread([before - now for before, now in zip(shared, after, strict=True)])
        rows.append(row)
    return study.table(rows)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedmlac")
    parser.add_argument("--only", nargs="+", choices=list(arms()), default=list(arms()))
    chosen = parser.parse_args()
    found = {
        part: {arm: [play(part, arm, seed, chosen.runs) for seed in chosen.seeds] for arm in arms()[part]}
        for part in arms()
        if part in chosen.only
    }
    tables = [table(found, part) for part in found]
    text = "# FedMLAC on embedded keywords\n\nTest accuracy in percent, mean ± SD over seeds.\n\n" + "\n\n".join(tables)
    kept = {
        part: {
            arm: [{key: one[key] for key in ("personal", "best")} for one in results]
            for arm, results in found[part].items()
        }
        for part in found
    }
    command = study.command(parser, chosen)
    command = "make study-fedmlac" if command == parser.prog else command
    study.write("fedmlac_keywords", text, {"found": kept}, command, chosen.seeds)
    print(text)


if __name__ == "__main__":
    main()
