"""FedNST: alpha, the weight of the server's update, with 4,000 clients of ten utterances and 7 % of them per round.

    python sweeps/fednst_alpha.py

With alpha = 0 the server trains only the seed model; with alpha = 1 the clients' updates have no weight.
"""

import sys

from fedray.report.figures import Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fednst_alpha",
    question="How much weight should the server's update have?",
    base="configs/fednst/ablations/clients_4k.yaml",
    space={"algorithm.alpha": tune.grid_search([0.0, 0.1, 0.3, 0.5])},
    figures=[Curves(("dev/wer",), baseline="seed"), Trend("algorithm.alpha", "dev/wer")],
    small=["rounds=2", "cohort.fraction=0.2", "data.options.client_speakers=40", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
