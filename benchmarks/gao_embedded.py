"""Gao et al. on the French twin of Common Voice: table 1, and clients with wrong transcripts; three seeds of corpus and training.

    python benchmarks/gao_embedded.py [--seeds 0 1 2] [--only wrong regimes] [--runs runs/study-gao]

About 200 clients. Scored is the model of the best round by dev on speakers that nobody has heard. The pages are gao_wrong.md and
gao_regimes.md. Runs that are finished are kept; the same command goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from typing import Any

import study

Arm = tuple[str, list[str]]  # configuration, overrides
WEIGHTS = {"examples": "by_examples", "loss": "by_loss", "WER": "by_wer"}
SPEAKERS, UTTERANCES, ROUNDS = 10, 11.6, 8  # of a cross-device round, of a speaker: what a run trains on is the same in all regimes
GREEDY = "task.decode.search=greedy"  # a model from scratch says so little that a beam with a language model takes minutes
CROSS_DEVICE = [f"rounds={ROUNDS}", f"cohort.size={SPEAKERS}"]
FEDERATED = {
    "ten silos": ("embedded_silos", [f"rounds={ROUNDS // 4}"]),  # 2,256 utterances once are four rounds' worth
    "two speakers a client": ("embedded_pairs", [f"rounds={ROUNDS}", f"cohort.size={SPEAKERS // 2}"]),
    "one speaker a client": ("embedded", CROSS_DEVICE),
    "from scratch": ("embedded_scratch", CROSS_DEVICE),
}
FIRST = "examples"


def arms() -> dict[str, dict[str, Arm]]:
    """Part -> arm -> what is run."""
    central = [GREEDY, f"algorithm.utterances={5 * SPEAKERS * UTTERANCES:.0f}", f"rounds={ROUNDS}"]
    regimes: dict[str, Arm] = {"all, central": ("embedded_all", central), "second half, central": ("embedded_second_half", central)}
    for regime, (name, own) in FEDERATED.items():
        regimes |= {f"{regime}, {words}": (name, [GREEDY, *own, f"strategy.kind={kind}"]) for words, kind in WEIGHTS.items()}
    sharp = [("loss", "by_loss", 1.0), *(("WER", "by_wer", temperature) for temperature in (1.0, 0.05))]
    wrong = {FIRST: ["strategy={kind: by_examples}"]}
    wrong |= {f"{words}, temperature {t:g}": [f"strategy={{kind: {kind}, temperature: {t}}}"] for words, kind, t in sharp}
    return {"wrong": {arm: ("embedded_wrong", own) for arm, own in wrong.items()}, "regimes": regimes}


def play(part: str, arm: str, seed: int, runs: Path) -> dict[str, Any]:
    """Scores of the seed model and of the best round, and the effective number of clients, mean over rounds."""
    config, own = arms()[part][arm]
    out = runs / f"seed-{seed}" / f"{part}-{arm.replace(', ', '-').replace(' ', '-')}"
    print(f"seed {seed}, {part}, {arm}: {out}", flush=True)
    results = study.run(f"configs/gao/{config}.yaml", [f"seed={seed}", f"data.seed={seed}", *own], out)
    rows = study.rounds(out)
    return {
        "seed": results["seed"],
        "best": results["best"],
        "cohort": mean(row["clients/ok"] for row in rows),
        "effective": mean(row["clients/effective"] for row in rows),
        "seconds": mean(row["time/round_s"] for row in rows),
    }


def page(part: str, found: dict[str, list[dict[str, Any]]]) -> str:
    """A row an arm: WER of the best model, its change from the warm-up's, how many clients counted, seconds a round."""
    rows = [{"trained on": "warm-up alone", "test WER": study.spread([one["seed"]["test/wer"] for one in next(iter(found.values()))])}]
    rows[0] |= {"change": "", "clients that count": "", "seconds a round": ""}
    for arm, results in found.items():
        changes = [one["best"]["test/wer"] - one["seed"]["test/wer"] for one in results]
        rows.append(
            {"trained on": arm, "test WER": study.spread([one["best"]["test/wer"] for one in results]), "change": study.spread(changes)}
            | {"clients that count": f"{mean(one['effective'] for one in results):.1f} of {mean(one['cohort'] for one in results):.0f}"}
            | {"seconds a round": f"{mean(one['seconds'] for one in results):.1f}"}
        )
    title = {"wrong": "two of five with wrong transcripts", "regimes": "table 1"}[part]
    text = f"# Gao et al. on about 200 embedded clients: {title}\n\n"
    return f"{text}Test WER in percent, mean ± SD over seeds; the change is from the warmed-up model.\n\n{study.table(rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=study.ROOT / "runs" / "study-gao", help="where the run folders are kept")
    parser.add_argument("--only", nargs="+", choices=list(arms()), default=list(arms()))
    chosen = parser.parse_args()
    for part in chosen.only:
        found = {arm: [play(part, arm, seed, chosen.runs) for seed in chosen.seeds] for arm in arms()[part]}
        text = page(part, found)
        study.write(f"gao_{part}", text, {"found": found}, f"python benchmarks/gao_embedded.py --only {part}", chosen.seeds)
        print(text)


if __name__ == "__main__":
    main()
