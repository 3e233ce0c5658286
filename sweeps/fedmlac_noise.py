"""FedMLAC, table 6: white noise in the clients' training data, at 100 (hardly any), 30, 20 and 10 dB; test is clean.

python sweeps/fedmlac_noise.py
"""

import sys

from fedray.report.figures import Bars, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_noise",
    question="How robust is each method against noise on the clients?",
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
        "data.corruption.snr_db": tune.grid_search([100, 30, 20, 10]),  # the paper's; a trend cannot show null
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}"],
    metric="personal/accuracy",
    mode="max",
    figures=[
        Trend("data.corruption.snr_db", "personal/test/accuracy", by="method"),
        Trend("data.corruption.snr_db", "personal/test/macro_f1", by="method"),
        Bars("personal/test/accuracy"),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
