"""FedMLAC, figure 2: personal models of five sizes, with and without layer-wise pruning.

python sweeps/fedmlac_heterogeneous.py
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmlac_heterogeneous",
    question="What does layer-wise pruning contribute if clients have different models?",
    base="configs/fedmlac/embedded.yaml",
    space={
        "strategy.kind": tune.grid_search(["layerwise_pruning", "by_examples"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "algorithm.sizes=[tiny,lite,mid,base,deep]"],
    metric="personal/accuracy",
    mode="max",
    figures=[
        Bars("personal/test/accuracy"),
        Bars("personal/test/macro_f1"),
        Curves(("personal/accuracy", "dev/accuracy")),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
