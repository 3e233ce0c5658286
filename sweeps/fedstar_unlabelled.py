"""FedSTAR, table 6: the number of unlabelled clips on the clients.

    python sweeps/fedstar_unlabelled.py

From random and from pre-trained weights. The sweep pre-trains first, into runs/pretrained; it finishes and uses a
pre-training that is there. 100 rounds as in the paper.
"""

import sys

from fedray.report.figures import Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedstar_unlabelled",
    question="How many unlabelled clips does FedSTAR need?",
    base="configs/fedstar/embedded.yaml",
    names={"start": {"random": "null", "pre-trained": "{pretrained}"}},
    space={
        "start": tune.grid_search(["random", "pre-trained"]),
        "data.labelled.unlabelled": tune.grid_search([0.2, 0.5, 0.8, 1.0]),
        "data.labelled.share": tune.grid_search([0.03, 0.05, 0.2, 0.5]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "model.init={start}", "rounds=100"],
    metric="dev/accuracy",
    mode="max",
    figures=[
        Trend("data.labelled.unlabelled", "test/accuracy", by="start", percent=True),
    ],
    small=["rounds=2"],
    pretrain="configs/fedstar/pretraining.yaml",
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
