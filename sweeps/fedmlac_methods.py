"""FedMLAC, table 4: personal CRNN-Base models beside a plug-in, against FedAvg, FedProx and FedOpt, 20 % of the clients a round.

    python sweeps/fedmlac_methods.py
    python sweeps/fedmlac_methods.py data.corpus=crema_d data.root=/corpora "data.options={fold: 1}" task.window=1

Scored is the mean over the clients' own models on the common test set: of FedMLAC the personal ones, of the others the global model after
a client's training. test/accuracy is the global model's (FedMLAC: the plug-in's). Three seeds, of the corpus and of the training.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_methods",
    question="Are clients better off with a model of their own and a shared plug-in, or with one shared model?",
    base="configs/fedmlac/{method}.yaml",
    names={"method": {"FedAvg": "fedavg", "FedProx": "fedprox", "FedOpt": "fedopt", "FedMLAC": "embedded"}},
    space={"method": tune.grid_search(["FedAvg", "FedProx", "FedOpt", "FedMLAC"]), "seed": tune.grid_search([0, 1, 2])},
    settings=["data.seed={seed}"],
    metric="own/accuracy",
    mode="max",
    figures=[Bars("own/test/accuracy"), Bars("test/accuracy"), Curves(("own/accuracy", "dev/accuracy"))],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
