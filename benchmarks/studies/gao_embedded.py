"""Gao et al. on embedded French: table 1, and clients with wrong transcripts, three seeds of corpus and training.

    python -m benchmarks.studies.gao_embedded [--seeds 0 1 2] [--only wrong regimes] [--runs runs/study-gao]

About 200 clients. Scores are those of the best round by dev, on new speakers. The pages are gao_embedded_wrong.md and
gao_embedded_regimes.md. The same command resumes; finished runs are kept.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import study

Arm = tuple[str, list[str]]  # configuration, overrides
WEIGHTS = {"examples": "by_examples", "loss": "by_loss", "WER": "by_wer"}
SPEAKERS, UTTERANCES, ROUNDS = 10, 11.6, 8  # per cross-device round, per speaker; all regimes hear as much speech
GREEDY = "task.decode.search=greedy"  # a beam search takes minutes with a model from scratch
CROSS_DEVICE = [f"rounds={ROUNDS}", f"cohort.size={SPEAKERS}"]
FEDERATED = {
    # One pass over 2,256 utterances is worth four rounds.
    "ten silos": ("ablations/silos", [f"rounds={ROUNDS // 4}", "algorithm.client.epochs=1"]),
    "two speakers a client": ("ablations/pairs", [f"rounds={ROUNDS}", f"cohort.size={SPEAKERS // 2}"]),
    "one speaker a client": ("embedded", CROSS_DEVICE),
    "from scratch": ("ablations/scratch", CROSS_DEVICE),
}
FIRST = "examples"


def arms() -> dict[str, dict[str, Arm]]:
    """Part -> arm -> what is run."""
    central = [GREEDY, f"algorithm.utterances={5 * SPEAKERS * UTTERANCES:.0f}", f"rounds={ROUNDS}"]
    regimes: dict[str, Arm] = {
        "all, central": ("baselines/central", central),
        "second half, central": ("baselines/central_second_half", central),
    }
    for regime, (name, overrides) in FEDERATED.items():
        regimes |= {
            f"{regime}, {words}": (name, [GREEDY, *overrides, f"strategy.kind={kind}"])
            for words, kind in WEIGHTS.items()
        }
    sharp = [("loss", "by_loss", 1.0), *(("WER", "by_wer", temperature) for temperature in (1.0, 0.05))]
    wrong = {FIRST: ["strategy={kind: by_examples}"]}
    wrong |= {
        f"{words}, temperature {t:g}": [f"strategy={{kind: {kind}, temperature: {t}}}"] for words, kind, t in sharp
    }
    return {
        "wrong": {arm: ("ablations/wrong_transcripts", overrides) for arm, overrides in wrong.items()},
        "regimes": regimes,
    }


def play(part: str, arm: str, seed: int, runs: Path) -> dict[str, Any]:
    """Scores of the seed model and of the best round, and the mean effective number of clients."""
    config, overrides = arms()[part][arm]
    out = runs / f"seed-{seed}" / f"{part}-{arm.replace(', ', '-').replace(' ', '-')}"
    print(f"seed {seed}, {part}, {arm}: {out}", flush=True)
    results = study.run(f"configs/gao/{config}.yaml", [f"seed={seed}", f"data.seed={seed}", *overrides], out)
    rows = study.rounds(out)
    return {
        "seed": results["seed"],
        "best": results["best"],
        "cohort": mean(row["clients/ok"] for row in rows),
        "effective": mean(row["clients/effective"] for row in rows),
        "seconds": mean(row["time/round_s"] for row in rows),
    }


def page(part: str, found: dict[str, list[dict[str, Any]]]) -> str:
    """One row per arm: WER of the best model, change from the warm-up, effective clients, seconds a round."""
    rows = [
        {
            "trained on": "warm-up alone",
            "test WER": study.spread([one["seed"]["test/wer"] for one in next(iter(found.values()))]),
        }
    ]
    rows[0] |= {"change": "", "effective clients": "", "seconds a round": ""}
    for arm, results in found.items():
        changes = [one["best"]["test/wer"] - one["seed"]["test/wer"] for one in results]
        rows.append(
            {
                "trained on": arm,
                "test WER": study.spread([one["best"]["test/wer"] for one in results]),
                "change": study.spread(changes),
            }
            | {"effective clients": f"{average(results, 'effective'):.1f} of {average(results, 'cohort'):.0f}"}
            | {"seconds a round": f"{average(results, 'seconds'):.1f}"}
        )
    title = {"wrong": "two in five with wrong transcripts", "regimes": "table 1"}[part]
    text = f"# Gao et al. on about 200 embedded clients: {title}\n\n"
    caption = "Test WER in percent, mean ± SD over seeds; changes are from the warmed-up model."
    return f"{text}{caption}\n\n{study.table(rows)}"


def average(results: list[dict[str, Any]], key: str) -> float:
    return mean(one[key] for one in results)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-gao")
    parser.add_argument("--only", nargs="+", choices=list(arms()), default=list(arms()))
    chosen = parser.parse_args()
    for part in chosen.only:
        found = {arm: [play(part, arm, seed, chosen.runs) for seed in chosen.seeds] for arm in arms()[part]}
        text = page(part, found)
        command = study.command(parser, chosen, only=[part])
        study.write(f"gao_embedded_{part}", text, {"found": found}, command, chosen.seeds)
        print(text)


if __name__ == "__main__":
    main()
