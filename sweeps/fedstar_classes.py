"""FedSTAR, table 5: labelled clips of three classes per client on average, evenly or unevenly.

python sweeps/fedstar_classes.py

With beta = 0 a round takes FedSTAR's steps without pseudo-labels. 100 rounds as in the paper.
"""

import sys

from fedray.report.figures import Bars, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedstar_classes",
    question="Do pseudo-labels help if a client has labels of few classes only?",
    base="configs/fedstar/{method}.yaml",
    names={"method": {"supervised": "baselines/supervised", "beta = 0": "baselines/beta_0", "FedSTAR": "embedded"}},
    space={
        "method": tune.grid_search(["supervised", "beta = 0", "FedSTAR"]),
        "data.clients.labels_spread": tune.grid_search([0.0, 0.25, 0.5]),
        "data.labelled.share": tune.grid_search([0.03, 0.05, 0.2, 0.5]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "data.clients.labels=3", "rounds=100"],
    metric="dev/accuracy",
    mode="max",
    figures=[
        Trend("data.clients.labels_spread", "test/accuracy", by="method", percent=True),
        Bars("test/accuracy"),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
