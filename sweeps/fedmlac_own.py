"""FedMLAC: whom do personal models serve? Scored on what each client holds out, and on the common test of new speakers.

    python sweeps/fedmlac_own.py

A client is a speaker, or has skewed classes (Dirichlet, alpha 0.1 to 1). It holds out a quarter of its utterances. All
methods but FedOpt use one learning rate. personal/own/accuracy is the mean over the clients: of personal models
(FedMLAC, isolated, Ditto), or of the global model after a client's training (the others). Three seeds, of the corpus
and of the training.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_own",
    question="Whom do personal models serve?",
    base="configs/fedmlac/{method}.yaml",
    names={
        "method": {
            "FedAvg": "baselines/fedavg",
            "FedProx": "baselines/fedprox",
            "FedOpt": "baselines/fedopt",
            "Ditto": "baselines/ditto",
            "isolated": "ablations/isolated",
            "FedMLAC": "embedded",
        },
        "clients": {
            "speakers": "{by: speaker}",
            "alpha 0.1": "{by: dirichlet, count: 50, alpha: 0.1, min_utterances: 2}",
            "alpha 0.3": "{by: dirichlet, count: 50, alpha: 0.3, min_utterances: 2}",
            "alpha 0.5": "{by: dirichlet, count: 50, alpha: 0.5, min_utterances: 2}",
            "alpha 1": "{by: dirichlet, count: 50, alpha: 1.0, min_utterances: 2}",
        },
    },
    space={
        "method": tune.grid_search(["FedAvg", "FedProx", "FedOpt", "Ditto", "isolated", "FedMLAC"]),
        "clients": tune.grid_search(["speakers", "alpha 0.1", "alpha 0.3", "alpha 0.5", "alpha 1"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "data.own_share=0.25", "data.clients={clients}"],
    metric="personal/own_accuracy",
    mode="max",
    figures=[Bars("personal/own/accuracy"), Bars("personal/test/accuracy"), Curves(("personal/own_accuracy",))],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
