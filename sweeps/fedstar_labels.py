"""FedSTAR, table 4 and figure 4: the share of labels, and the number of clients.

    python sweeps/fedstar_labels.py
    python sweeps/fedstar_labels.py rounds=20   # a quick look, too short to compare

The supervised federation has the same labels and ignores unlabelled clips; a round of FedSTAR takes up to ten times as
many steps. With beta = 0 it takes as many without pseudo-labels. 100 rounds as in the paper. Table 3 compares all
labels (L = 100 %) with the central model: python -m benchmarks.studies.fedstar_supervised.
"""

import sys

from fedray.report.figures import Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedstar_labels",
    question="What do unlabelled clips gain for each number of labels and clients?",
    base="configs/fedstar/{method}.yaml",
    names={"method": {"supervised": "baselines/supervised", "beta = 0": "baselines/beta_0", "FedSTAR": "embedded"}},
    space={
        "method": tune.grid_search(["supervised", "beta = 0", "FedSTAR"]),
        "data.labelled.share": tune.grid_search([0.03, 0.05, 0.2, 0.5]),
        "data.clients.count": tune.grid_search([5, 10, 15, 30]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "rounds=100"],
    metric="dev/accuracy",
    mode="max",
    figures=[
        Trend("data.clients.count", "test/accuracy", by="method"),
        Trend("data.labelled.share", "test/accuracy", by="method", log=True, percent=True),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
