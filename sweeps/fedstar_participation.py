"""FedSTAR, figure 2: from 20 to 80 % of the clients per round, over 100 rounds as in the paper.

python sweeps/fedstar_participation.py
"""

import sys

from fedray.report.figures import Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedstar_participation",
    question="How many clients does a round need?",
    base="configs/fedstar/embedded.yaml",
    space={
        "cohort.fraction": tune.grid_search([0.2, 0.4, 0.6, 0.8]),
        "data.labelled.share": tune.grid_search([0.03, 0.05, 0.2, 0.5]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "rounds=100"],
    metric="dev/accuracy",
    mode="max",
    figures=[
        Trend("cohort.fraction", "test/accuracy", by="data.labelled.share", percent=True),
        Trend("cohort.fraction", "traffic/total_bytes", by="data.labelled.share", percent=True),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
