"""FedMLAC with 1, 4 and 8 personal models that wander from client to client, against FedMLAC and FedAvg.

    python -m benchmarks.studies.fedmlac_wandering [--seeds 0 1 2] [--rounds 200] [--arms FedAvg] [--runs DIR]

A simulation that keeps personal models in its processes, not with their clients, passes them on by mistake. Each of N
models then learns from all clients, in 1 / N of the steps. Scores are those of personal models on half of test, new
speakers, after the last round. Models that are passed on have a learning rate of 0.1, the better of 0.1 and 0.3 on dev;
the others have 0.3, FedAvg also 0.1. The same command resumes the study: it keeps finished runs, and takes runs whose
folders are gone from the earlier page. A wandering run that was cut short must be removed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.studies import passed_on
from fedray import experiment

LENGTH = 200
SCORING = ["evaluation.every=10", "evaluation.personal_every=20", "evaluation.personal_final_utterances=400"]
ARMS: dict[str, tuple[str, list[str]]] = {
    "FedAvg": ("baselines/fedavg", []),
    "FedAvg, 0.1": ("baselines/fedavg", ["algorithm.client.lr=0.1"]),
    "FedMLAC": ("embedded", []),
    **{
        f"{models} personal model{'s' * (models > 1)}, passed on": ("embedded", passed_on.overrides(models))
        for models in (1, 4, 8)
    },
}


def play(arm: str, seed: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """The scores of the personal models and of the shared one, and the personal accuracy by round."""
    config, overrides = ARMS[arm]
    actors = [f"engine.actors={chosen.actors}"]  # wandering models override this
    own = [f"seed={seed}", f"data.seed={seed}", f"rounds={chosen.rounds}", *SCORING]
    results = study.run(f"configs/fedmlac/{config}.yaml", [*own, *actors, *overrides], place)
    in_rounds = [
        (row["round"], row["personal/accuracy"])
        for row in study.rounds(place)
        if row.get("personal/accuracy") is not None
    ]
    return {"seed": seed, "personal": results["personal"], "best": results["best"], "rounds": in_rounds}


def rate(arm: str) -> float:
    """The clients' learning rate."""
    config, overrides = ARMS[arm]
    return float(
        experiment.load(study.ROOT / f"configs/fedmlac/{config}.yaml", overrides)[0].algorithm.settings.client.lr
    )


def table(found: study.Found) -> str:
    """A row for each arm."""
    rows = []
    for arm, runs in found.items():
        row = {"": arm, "learning rate": f"{rate(arm):g}"}
        row["personal models"] = study.spread([run["personal"]["test/accuracy"] for run in runs])
        row["macro-F1"] = study.spread([run["personal"]["test/macro_f1"] for run in runs])
        row["SD over clients"] = study.spread([run["personal"]["test/accuracy_sd"] for run in runs])
        row["shared model"] = study.spread([run["best"]["test/accuracy"] for run in runs])
        row["personal models on dev, halfway and at the end"] = study.half_and_end(runs)
        rows.append(row | {"seeds": ", ".join(str(run["seed"]) for run in runs)})
    return study.table(rows)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedmlac-wandering", rounds=LENGTH)
    chosen = study.chosen(parser, ARMS)

    before = study.page_before("fedmlac_wandering", rounds=chosen.rounds).get("found", {})
    found = study.gathered(
        before, ARMS, chosen, study.place(chosen.runs), lambda arm, seed, to: play(arm, seed, to, chosen)
    )
    text = f"""# Personal models passed from client to client

Embedded keywords, 50 clients of one speaker each, ten clients a round, {chosen.rounds} rounds. Test accuracy in percent
on new speakers: mean over the personal models of all clients that took part, mean ± SD over seeds.

{table(found)}"""
    print(text)
    numbers = {"rounds": chosen.rounds, "found": found}
    study.write(
        "fedmlac_wandering",
        text,
        numbers,
        study.command(parser, chosen, arms=study.on_page(ARMS, found)),
        study.seeds(found),
    )


if __name__ == "__main__":
    main()
