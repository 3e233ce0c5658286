"""FedMLAC, table 5: from 10 to 100 % of the clients per round.

python sweeps/fedmlac_participation.py
"""

import sys

from fedray.report.figures import Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_participation",
    question="How many clients does a round need?",
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
        "cohort.fraction": tune.grid_search([0.1, 0.2, 0.5, 1.0]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}"],
    metric="personal/accuracy",
    mode="max",
    figures=[
        Trend("cohort.fraction", "personal/test/accuracy", by="method", percent=True),
        Trend("cohort.fraction", "personal/test/macro_f1", by="method", percent=True),
        Trend("cohort.fraction", "traffic/total_bytes", by="method", percent=True),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
