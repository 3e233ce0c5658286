"""Gao et al., table 1, federated: silos, two speakers or one per client, one from scratch; three weightings each.

    python sweeps/gao_regimes.py

    silos    ten clients of equal hours         one      one speaker per client
    pairs    two speakers per client            scratch  one speaker per client, without the warm-up

About 200 speakers; all but the last start from the same warmed-up model. Three seeds, of corpus and training.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="gao_regimes",
    question="What does it cost to spread speech over many small clients?",
    base="configs/gao/{regime}.yaml",
    names={
        "regime": {
            "silos": "ablations/silos",
            "pairs": "ablations/pairs",
            "one": "embedded",
            "scratch": "ablations/scratch",
        },
        "weighted by": {"examples": "by_examples", "loss": "by_loss", "WER": "by_wer"},
    },
    space={
        "regime": tune.grid_search(["silos", "pairs", "one", "scratch"]),
        "weighted by": tune.grid_search(["examples", "loss", "WER"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["strategy.kind={weighted by}", "data.seed={seed}"],
    figures=[Bars("test/wer"), Curves(("dev/wer",), baseline="seed")],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
