"""FedNST, section 4: the server's optimiser: plain averaging (FedAvg), momentum (FedAvgM) or Adam (FedAdam).

    python sweeps/fednst_server_optimizer.py
    python sweeps/fednst_server_optimizer.py rounds=100 algorithm.server_scheduled=true   # until dev levels off

The paper saw little difference, and took plain averaging, the cheapest. Three seeds, of the corpus and of the training.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

OPTIMIZERS = {
    "FedAvg": "{kind: sgd, lr: 1.0}",
    "FedAvgM": "{kind: momentum, lr: 0.3, beta: 0.9}",
    "FedAdam 3e-3": "{kind: adam, lr: 3e-3}",
    "FedAdam 1e-3": "{kind: adam, lr: 1e-3}",
    "FedAdam 3e-4": "{kind: adam, lr: 3e-4}",
}
SWEEP = Sweep(
    name="fednst_server_optimizer",
    question="Does the server need more than the mean?",
    base="configs/fednst/embedded.yaml",
    space={"optimizer": tune.grid_search(list(OPTIMIZERS)), "seed": tune.grid_search([0, 1, 2])},
    names={"optimizer": OPTIMIZERS},
    settings=["data.seed={seed}", "server_optimizer={optimizer}"],
    figures=[Curves(("dev/wer",), baseline="seed"), Bars("test/wer_lm"), Bars("test/wer")],
    small=["rounds=2", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
