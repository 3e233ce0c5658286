"""FedSTAR's threshold where pseudo-labels have time to pay: rising, fixed at 0.5 and at 0.9, and none used. Three trials.

    python benchmarks/fedstar_threshold.py [--seeds 0 1 2] [--runs runs/study-fedstar-threshold]

Embedded keywords, 5 clients (a client takes three times as many steps a round as with 15), 3 % of the clips labelled, 30 rounds, temperature 1.
All four take the same steps on the same clips; scored is the model of the best round by dev on speakers that nobody has heard.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import study
from fedstar_keywords import THRESHOLDS, draw, play, score, thresholds

LONG = ["data.clients.count=5", "algorithm.temperature=1.0", "rounds=30"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=study.ROOT / "runs" / "study-fedstar-threshold", help="where the run folders are kept")
    chosen = parser.parse_args()
    played = [{name: play(("embedded", [*LONG, *own]), seed, chosen.runs) for name, own in THRESHOLDS.items()} for seed in chosen.seeds]
    found = {name: [trial[name] for trial in played] for name in THRESHOLDS}
    draw(found, study.ROOT / "benchmarks" / "fedstar_threshold.png")
    unused = score(found["none used (beta = 0)"])
    rows = []
    for name, results in found.items():
        gains = [after - before for after, before in zip(score(results), unused, strict=True)]
        rows.append({"threshold": name, "gain over none used": study.spread(gains)})
    text = "# FedSTAR's threshold over 30 rounds\n\nTest accuracy and shares in percent, mean ± SD over trials."
    text += f"\n\n{thresholds(found)}\n\n{study.table(rows)}"
    study.write("fedstar_threshold", text, {"found": found}, "python benchmarks/fedstar_threshold.py", chosen.seeds)
    print(text)


if __name__ == "__main__":
    main()
