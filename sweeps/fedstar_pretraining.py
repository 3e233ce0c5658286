"""FedSTAR, figure 5: random or pre-trained initial weights, after ten rounds.

    python sweeps/fedstar_pretraining.py

The sweep pre-trains first, into runs/pretrained; it finishes and uses a pre-training that is there. For another one:
fedray pretrain configs/fedstar/pretraining_fsd50k.yaml --out runs/pretrained.
With all labels a batch has 32 clips; with fewer it has up to 32 labelled and 32 unlabelled ones.
"""

import sys

from fedray.report.figures import Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedstar_pretraining",
    question="Does self-supervised pre-training save rounds?",
    base="configs/fedstar/embedded.yaml",
    names={"start": {"random": "null", "pre-trained": "{pretrained}"}},
    space={
        "start": tune.grid_search(["random", "pre-trained"]),
        "data.labelled.share": tune.grid_search([0.03, 0.05, 0.2, 0.5, 1.0]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "model.init={start}", "rounds=10", "evaluation.every=1"],
    metric="dev/accuracy",
    mode="max",
    figures=[
        Trend("data.labelled.share", "test/accuracy", by="start", log=True, percent=True),
        Curves(("dev/accuracy", "train/loss")),
    ],
    small=["rounds=2"],
    pretrain="configs/fedstar/pretraining.yaml",
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
