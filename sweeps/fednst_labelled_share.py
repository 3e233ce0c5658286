"""FedNST, figure 2: true transcripts for some clients, or for some utterances of each; alpha = 0 and 0.3.

    python sweeps/fednst_labelled_share.py
    python sweeps/fednst_labelled_share.py rounds=100 algorithm.server_scheduled=true   # until dev levels off

Three seeds, of the corpus and of the training.
"""

import sys

from fedray.report.figures import Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fednst_labelled_share",
    question="What do true transcripts on clients gain, and when do the server's data help?",
    base="configs/fednst/embedded.yaml",
    space={
        "of": tune.grid_search(["clients", "utterances"]),
        "share": tune.grid_search([0.0, 0.25, 0.5, 1.0]),
        "algorithm.alpha": tune.grid_search([0.0, 0.3]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "data.labelled.{of}={share}"],
    figures=[Trend("share", "test/wer_lm", by="algorithm.alpha", percent=True)],
    small=["rounds=2", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
