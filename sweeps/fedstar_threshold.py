"""FedSTAR: its rising threshold against fixed ones, and against no pseudo-labels (beta = 0: the same steps).

python sweeps/fedstar_threshold.py
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedstar_threshold",
    question="How confident must a pseudo-label be?",
    base="configs/fedstar/embedded.yaml",
    names={
        "arm": {
            "rising, 0.5 to 0.9": "threshold={first: 0.5, last: 0.9}",
            "0.5": "threshold={first: 0.5, last: 0.5}",
            "0.9": "threshold={first: 0.9, last: 0.9}",
            "no pseudo-labels": "beta=0",
        }
    },
    space={
        "arm": tune.grid_search(["rising, 0.5 to 0.9", "0.5", "0.9", "no pseudo-labels"]),
        "algorithm.temperature": tune.grid_search([1.0, 4.0]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "algorithm.{arm}"],
    metric="dev/accuracy",
    mode="max",
    figures=[
        Bars("test/accuracy"),
        Curves(("dev/accuracy", "train/labels_kept", "train/label_accuracy")),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
