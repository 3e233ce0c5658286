"""FedSTAR, table 3: all clips labelled, trained in one place and by federations of 5 to 30 clients; three trials.

    python -m benchmarks.studies.fedstar_supervised [--seeds 0 1 2] [--rounds 100] [--runs DIR]

Embedded keywords. Scores are those of the best round by dev, on new speakers. The central model trains in the central
configuration's own number of rounds, each of which is one pass over all clips.
"""

from __future__ import annotations

from benchmarks import study
from benchmarks.studies.fedstar_keywords import CLIENTS, Arm, play, score


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-supervised")
    parser.add_argument("--rounds", type=int, default=100, help="of the federations")
    chosen = parser.parse_args()
    arms: dict[str, Arm] = {"central": ("baselines/central", [])}
    for count in CLIENTS:
        overrides = ["data.labelled.share=1.0", f"data.clients.count={count}", f"rounds={chosen.rounds}"]
        arms[f"N = {count}"] = ("baselines/supervised", overrides)
    found = {name: [play(arm, seed, chosen.runs) for seed in chosen.seeds] for name, arm in arms.items()}
    rows = [{"trained": name, "test accuracy": study.spread(score(results))} for name, results in found.items()]
    study.write(
        "fedstar_supervised",
        f"# FedSTAR, table 3: all clips labelled\n\nTest accuracy, mean ± SD over trials.\n\n{study.table(rows)}",
        {"found": found},
        study.command(parser, chosen),
        chosen.seeds,
    )


if __name__ == "__main__":
    main()
