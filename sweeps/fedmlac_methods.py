"""FedMLAC, table 4: personal CRNN-Base models with a plug-in, against FedAvg, FedProx and FedOpt.

    python sweeps/fedmlac_methods.py
    python sweeps/fedmlac_methods.py data.corpus=crema_d data.root=/corpora "data.options={fold: 1}" task.window=1 \
        rounds=5000 "algorithm.client={lr: 0.01, batch: 16, epochs: 1, clip: null}" evaluation.every=50 \
        evaluation.personal_every=50

personal/test/accuracy is the mean over clients on the common test set: of the personal models (FedMLAC), or of the
global model after a client's training (the others). test/accuracy is that of the global model, for FedMLAC that of the
plug-in. 20 % of the clients take part in a round. The second command has the paper's settings, the same for all
methods; for the other corpora see the configurations of their names. Three seeds, of the corpus and of the training.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_methods",
    question="Do personal models with a shared plug-in serve clients better than one shared model?",
    base="configs/fedmlac/{method}.yaml",
    names={
        "method": {
            "FedAvg": "baselines/fedavg",
            "FedProx": "baselines/fedprox",
            "FedOpt": "baselines/fedopt",
            "FedMLAC": "embedded",
        }
    },
    space={"method": tune.grid_search(["FedAvg", "FedProx", "FedOpt", "FedMLAC"]), "seed": tune.grid_search([0, 1, 2])},
    settings=["data.seed={seed}"],
    metric="personal/accuracy",
    mode="max",
    figures=[
        Bars("personal/test/accuracy"),
        Bars("personal/test/macro_f1"),
        Bars("test/accuracy"),
        Curves(("personal/accuracy", "dev/accuracy")),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
