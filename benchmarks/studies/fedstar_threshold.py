"""FedSTAR's threshold over more rounds: rising, fixed at 0.5, fixed at 0.9, and no pseudo-labels; three trials.

    python -m benchmarks.studies.fedstar_threshold [--seeds 0 1 2] [--rounds 30] [--clients 5]
                                                   [--only ARM ...] [--runs DIR]

Embedded keywords, 3 % of the clips labelled, temperature 1. All arms take the same steps on the same clips. Scores are
those of the best round by dev, on new speakers.
"""

from __future__ import annotations

from benchmarks import study
from benchmarks.studies.fedstar_keywords import THRESHOLDS, draw, play, score, thresholds

NONE = "none used (beta = 0)"


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-threshold")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(THRESHOLDS),
        default=list(THRESHOLDS),
        metavar="ARM",
        help=" | ".join(THRESHOLDS),
    )
    chosen = parser.parse_args()
    long = [f"data.clients.count={chosen.clients}", "algorithm.temperature=1.0", f"rounds={chosen.rounds}"]
    names = [*dict.fromkeys([*chosen.only, NONE])]  # the baseline of the others
    played = [
        {name: play(("embedded", [*long, *THRESHOLDS[name]]), seed, chosen.runs) for name in names}
        for seed in chosen.seeds
    ]
    found = {name: [trial[name] for trial in played] for name in names}
    draw(found, study.RESULTS / "fedstar_threshold.png")
    unused = score(found[NONE])
    rows = []
    for name, results in found.items():
        gains = [after - before for after, before in zip(score(results), unused, strict=True)]
        rows.append({"threshold": name, "gain over no pseudo-labels": study.spread(gains)})
    text = f"# FedSTAR's threshold over {chosen.rounds} rounds, {chosen.clients} clients\n\n"
    text += "Test accuracy and shares in percent, mean ± SD over trials."
    text += f"\n\n{thresholds(found)}\n\n{study.table(rows)}"
    study.write(
        "fedstar_threshold",
        text,
        {"found": found},
        study.command(parser, chosen),
        chosen.seeds,
    )
    print(text)


if __name__ == "__main__":
    main()
