"""FedSTAR, figure 3: one to four passes over the unlabelled clips per round, over 50 rounds as in the paper.

python sweeps/fedstar_epochs.py
"""

import sys

from fedray.report.figures import Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedstar_epochs",
    question="Do more local steps save rounds?",
    base="configs/fedstar/embedded.yaml",
    space={
        "algorithm.client.epochs": tune.grid_search([1, 2, 3, 4]),
        "data.labelled.share": tune.grid_search([0.03, 0.05, 0.2, 0.5]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "rounds=50"],
    metric="dev/accuracy",
    mode="max",
    figures=[
        Trend("algorithm.client.epochs", "test/accuracy", by="data.labelled.share"),
        Curves(("dev/accuracy",)),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
