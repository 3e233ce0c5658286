"""FedNST: from 1 to 7 % (the paper's share) of 4,000 clients with ten utterances each per round.

python sweeps/fednst_participation.py
"""

import sys

from fedray.report.figures import Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fednst_participation",
    question="How many clients does a round need?",
    base="configs/fednst/ablations/clients_4k.yaml",
    space={"cohort.fraction": tune.grid_search([0.01, 0.03, 0.07])},
    figures=[
        Curves(("dev/wer",), baseline="seed"),
        Trend("cohort.fraction", "dev/wer", percent=True),
        Trend("cohort.fraction", "traffic/total_bytes", percent=True),
    ],
    small=["rounds=2", "data.options.client_speakers=200", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
