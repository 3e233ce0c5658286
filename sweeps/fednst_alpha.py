"""FedNST: alpha, the server's share of each change, over 4,000 clients with ten utterances each, of which 7 % take part in a round.

    python sweeps/fednst_alpha.py

With alpha = 0 the server only sends the seed model and averages; with alpha = 1 the clients' labels change nothing.
"""

import sys

from fedray.report.figures import Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fednst_alpha",
    question="How much of each change should be the server's own?",
    base="configs/fednst/embedded_4k.yaml",
    space={"algorithm.alpha": tune.grid_search([0.0, 0.1, 0.3, 0.5])},
    figures=[Curves(("dev/wer",), baseline="seed"), Trend("algorithm.alpha", "dev/wer")],
    small=["rounds=2", "cohort.fraction=0.2", "data.options.client_speakers=40", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
