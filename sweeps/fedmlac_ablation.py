"""FedMLAC, figure 3: FedMLAC without mutual learning, and without layer-wise pruning (LPA).

python sweeps/fedmlac_ablation.py

w/o mutual   one shared CRNN-Base with LPA (the reading of the paper that fits its numbers)
isolated     both models, each trained on labels only
w/o LPA      plug-ins weighted by examples
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_ablation",
    question="What do mutual learning and layer-wise pruning contribute?",
    base="configs/fedmlac/{arm}.yaml",
    names={
        "arm": {
            "FedMLAC": "embedded",
            "w/o mutual": "ablations/without_mutual",
            "isolated": "ablations/isolated",
            "w/o LPA": "ablations/without_lpa",
        }
    },
    space={
        "arm": tune.grid_search(["FedMLAC", "w/o mutual", "isolated", "w/o LPA"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
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
