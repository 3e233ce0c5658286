"""FedNST, table 4: labels once from the seed model, or again from the round's model; word error rate and time.

    python sweeps/fednst_relabel.py
    python sweeps/fednst_relabel.py rounds=50 algorithm.server_scheduled=true   # the paper's length

Three seeds, of the corpus and of the training. One trial at a time, on all cores, since the sweep compares the time of
a round.
"""

import sys

from fedray.report.figures import Bars, Curves, Phases
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fednst_relabel",
    question="Is it worth labelling again in every round?",
    base="configs/fednst/embedded.yaml",
    space={
        "algorithm.relabel": tune.grid_search(["once", 10, "every_round"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}"],
    figures=[
        Bars("time/round_s"),
        Bars("test/wer_lm"),
        Bars("test/wer"),
        Curves(("dev/wer", "train/label_wer")),
        Phases(),
    ],
    small=["rounds=2", "algorithm.pretrain.steps=200"],
    at_once=1,
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
