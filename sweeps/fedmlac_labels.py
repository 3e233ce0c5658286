"""FedMLAC, table 7: wrong labels in the clients' training data, from 0 to 50 %; test labels are correct.

    python sweeps/fedmlac_labels.py
    python sweeps/fedmlac_labels.py data.corruption.sparsity=0.7

In the second command each client confuses only a few labels, different from those of the next client.
"""

import sys

from fedray.report.figures import Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_labels",
    question="How robust is each method against wrong labels on the clients?",
    base="configs/fedmlac/{method}.yaml",
    names={
        "method": {
            "FedAvg": "baselines/fedavg",
            "FedProx": "baselines/fedprox",
            "FedOpt": "baselines/fedopt",
            "FedMLAC": "embedded",
        }
    },
    space={
        "method": tune.grid_search(["FedAvg", "FedProx", "FedOpt", "FedMLAC"]),
        "data.corruption.label_errors": tune.grid_search([0.0, 0.1, 0.3, 0.5]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}"],
    metric="personal/accuracy",
    mode="max",
    figures=[
        Trend("data.corruption.label_errors", f"personal/test/{score}", by="method", percent=True)
        for score in ("accuracy", "macro_f1")
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
