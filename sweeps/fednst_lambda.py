"""FedNST, figure 1: lambda, the rounds in which the clients' learning rate halves (mu = 1/2), over 4,000 clients.

    python sweeps/fednst_lambda.py

The paper's 1,000 rounds with lambda = 250 ... 4,000 become 40 rounds with lambda = 10 ... 160 here; 5 is added.
"""

import sys

from fedray.report.figures import Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fednst_lambda",
    question="How fast should the clients' learning rate fall?",
    base="configs/fednst/ablations/clients_4k.yaml",
    settings=["rounds=40", "algorithm.schedule={kind: exponential, decay_rate: 0.5}"],
    space={"algorithm.schedule.decay_steps": tune.grid_search([5, 10, 20, 40, 160])},
    metric="dev/wer",
    figures=[Curves(("dev/wer",), smooth=0.8, last=30), Curves(("lr/client",), log=True)],
    small=["rounds=2", "cohort.fraction=0.2", "data.options.client_speakers=40", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
