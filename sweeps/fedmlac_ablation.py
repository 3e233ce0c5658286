"""FedMLAC, figure 3: what mutual learning and layer-wise pruning are worth.

python sweeps/fedmlac_ablation.py

w/o mutual   one shared CRNN-Base with LPA (the reading of the paper that fits its numbers)
isolated     both models, each learning from the labels alone
w/o LPA      the plug-ins weighed by examples
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_ablation",
    question="What are mutual learning and layer-wise pruning worth?",
    base="configs/fedmlac/{arm}.yaml",
    names={"arm": {"FedMLAC": "embedded", "w/o mutual": "without_mutual", "isolated": "isolated", "w/o LPA": "without_lpa"}},
    space={"arm": tune.grid_search(["FedMLAC", "w/o mutual", "isolated", "w/o LPA"]), "seed": tune.grid_search([0, 1, 2])},
    settings=["data.seed={seed}"],
    metric="own/accuracy",
    mode="max",
    figures=[Bars("own/test/accuracy"), Bars("test/accuracy"), Curves(("own/accuracy", "dev/accuracy"))],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
