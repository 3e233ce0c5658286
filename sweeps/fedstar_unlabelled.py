"""FedSTAR, table 6: the number of unlabelled clips on the clients.

    python sweeps/fedstar_unlabelled.py
    python sweeps/fedstar_unlabelled.py model.init=runs/pretrained/weights.pt

The second command gives the half of the table with pre-trained weights; they come from
fedray pretrain configs/fedstar/pretraining.yaml --out runs/pretrained.
"""

import sys

from fedray.report.figures import Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedstar_unlabelled",
    question="How many unlabelled clips does FedSTAR need?",
    base="configs/fedstar/embedded.yaml",
    space={
        "data.labelled.unlabelled": tune.grid_search([0.2, 0.5, 0.8, 1.0]),
        "data.labelled.share": tune.grid_search([0.03, 0.05, 0.2, 0.5]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}"],
    metric="dev/accuracy",
    mode="max",
    figures=[
        Trend("data.labelled.unlabelled", "test/accuracy", by="data.labelled.share", percent=True),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
