"""FedNST on the embedded corpus against SFL (true labels) and server-only, three seeds of corpus and training.

    python -m benchmarks.studies.fednst_embedded [--seeds 0 1 2] [--runs runs/study-fednst]

Test is 1,200 utterances by 60 new speakers; about half of the sentences are new too. The round is chosen by greedy WER
on 400 utterances by 20 other new speakers. The same command resumes; finished runs are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks import study

METHODS: dict[str, tuple[str, list[str]]] = {
    "server only": ("embedded.yaml", ["algorithm.alpha=1.0", "cohort.size=1"]),
    "FedNST": ("embedded.yaml", []),
    "true labels (SFL)": ("baselines/sfl.yaml", []),
}
SCORES = {
    "test": "test/wer",
    "test, LM": "test/wer_lm",
    "server's conditions": "test-server/wer",
    "dev": "dev/wer",
    "dev, LM": "dev/wer_lm",
}
COMMAND = "make study-fednst"


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fednst")
    arguments = parser.parse_args()
    seeds = [play(seed, arguments.runs) for seed in arguments.seeds]
    text, numbers = summary(seeds)
    study.write("fednst_embedded", text, numbers, COMMAND, arguments.seeds)
    print(text)


def play(seed: int, runs: Path) -> dict[str, Any]:
    """All methods from one seed: scores by model, and errors per utterance for the intervals."""
    played: dict[str, Any] = {"scores": {}, "counts": {}}
    for method, (config, overrides) in METHODS.items():
        out = runs / f"seed-{seed}" / method.split(" (")[0].replace(" ", "-").lower()
        print(f"seed {seed}, {method}: {out}", flush=True)
        results = study.run(f"configs/fednst/{config}", [f"seed={seed}", f"data.seed={seed}", *overrides], out)
        for name, model in (("seed model", "seed"), (method, "best")):
            played["scores"][name] = results[model]
            rows = study.predictions(out, model)
            played["counts"][name] = {
                "all": study.by_utterance(rows),
                "unseen": study.by_utterance([row for row in rows if row["label"] == "unseen"]),
            }
        if method == "FedNST":
            played["labels"] = mean(row["train/label_wer"] for row in study.rounds(out))
    return played


def spread(values: Sequence[float]) -> str:
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def summary(seeds: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The page, and its numbers."""
    rows = []
    for name in ("seed model", *METHODS):
        rows.append(
            {"WER (%)": name}
            | {title: spread([seed["scores"][name][key] for seed in seeds]) for title, key in SCORES.items()}
        )
    changes, relative = {}, []
    for method in METHODS:
        found = {
            part: study.change(
                [seed["counts"]["seed model"][part] for seed in seeds], [seed["counts"][method][part] for seed in seeds]
            )
            for part in ("all", "unseen")
        }
        changes[method] = {part: asdict(change) for part, change in found.items()}
        each = ", ".join(f"{change:+.1f}" for change in found["all"].runs)
        relative.append(
            {
                "change in greedy test WER": method,
                "all": str(found["all"]),
                "each seed": each,
                "unseen sentences": str(found["unseen"]),
            }
        )
    text = f"""# FedNST on the embedded corpus

The seed model is trained on 40 labelled speakers; 60 clients with 60 utterances each have no labels. Word error rate in
percent of the best round by dev, mean and standard deviation over {len(seeds)} seeds of corpus and training. Decoding
is greedy unless marked "LM" (beam 16, 6-gram).

{study.table(rows)}

Changes relative to the seed model: mean over seeds, with the 95 % interval of a paired bootstrap over utterances:

{study.table(relative)}

The clients' labels have a word error rate of {mean(seed["labels"] for seed in seeds):.1f} %.
"""
    return text, {
        "scores": [seed["scores"] for seed in seeds],
        "labels": [seed["labels"] for seed in seeds],
        "changes": changes,
    }


if __name__ == "__main__":
    main()
