"""FedNST, table 2: central and federated training, with true transcripts and with pseudo-labels, from one seed model.

    python sweeps/fednst_regimes.py

    SL_seed  the server's labelled speech only: the seed model, which every run scores
    SL       central, true transcripts for all speech       SFL     federated, true transcripts on the clients
    NST      central, pseudo-labels for the clients' speech FedNST  federated, pseudo-labels on the clients

Three seeds, of the corpus and of the training. The compared WER is that with the language model, as in the paper.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fednst_regimes",
    question="How much of the gain from true transcripts do pseudo-labels reach?",
    base="configs/fednst/{method}.yaml",
    names={
        "method": {"SL": "baselines/sl", "NST": "baselines/nst", "SFL": "baselines/sfl", "FedNST": "embedded"},
    },
    space={"method": tune.grid_search(["SL", "NST", "SFL", "FedNST"]), "seed": tune.grid_search([0, 1, 2])},
    settings=["data.seed={seed}"],
    figures=[Bars("test/wer_lm"), Bars("test/wer"), Curves(("dev/wer",))],
    reference="SFL",
    small=["rounds=2", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
