"""FedMLAC and its baselines at the paper's learning rate, 0.01, and at larger ones, as FedAudio tuned them.

    python sweeps/fedmlac_rates.py
    python sweeps/fedmlac_rates.py --with fedmlac/crema_d data.root=/corpora --metric personal/own/macro_f1
    python sweeps/fedmlac_rates.py --with fedmlac/crema_d --over "data.options.fold=[1,2,3,4,5]" data.root=/corpora \
        data.options.dev_fold=0 data.own_share=0 --metric personal/test/macro_f1

The paper fixes 0.01 for all methods. FedAudio (Zhang et al., 2023, appendix), whose protocol it follows, tuned the
clients' rate on each corpus: 0.1 to 0.3 for FedAvg on Speech Commands, 0.1 on CREMA-D, 0.075 on UrbanSound8K, 0.01 on
IEMOCAP. FedOpt's server has FedAudio's rate for Adam, 0.001. The other commands are for CREMA-D, with all actors as
clients, and with means over folds; the rate of each method is then chosen on the test that it reports. One seed.
"""

import sys

from fedray.report.figures import Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_rates",
    question="Which learning rate suits each method?",
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
        "algorithm.client.lr": tune.grid_search([0.01, 0.03, 0.1, 0.3]),
        "server_optimizer.lr": tune.sample_from(lambda config: 0.001 if config["method"] == "FedOpt" else 1.0),
    },
    metric="personal/accuracy",
    mode="max",
    figures=[
        Trend("algorithm.client.lr", "personal/test/macro_f1", by="method", log=True),
        Trend("algorithm.client.lr", "test/macro_f1", by="method", log=True),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
