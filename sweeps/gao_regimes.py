"""Gao et al., table 1, federated: silos, two speakers or one per client, from scratch; each with each weighting.

    python sweeps/gao_regimes.py

    silos    ten clients of equal hours         one      one speaker per client
    pairs    two speakers per client            scratch  one speaker per client, without the warm-up
                                                fedadam  the same with Adam on the server

"WER" is exp(1 - wer) on fractions, as the paper prints it; the authors' code takes percent, temperature 0.01.

About 200 speakers; all but the last start from the same warmed-up model. Three seeds, of corpus and training.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

WEIGHTS = {
    "examples": "{kind: by_examples}",
    "loss": "{kind: by_loss}",
    "WER": "{kind: by_wer}",
    "WER, 0.01": "{kind: by_wer, temperature: 0.01}",
}

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
            "fedadam": "ablations/scratch_fedadam",
        },
        "weighted by": WEIGHTS,
    },
    space={
        "regime": tune.grid_search(["silos", "pairs", "one", "scratch", "fedadam"]),
        "weighted by": tune.grid_search(list(WEIGHTS)),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["strategy={weighted by}", "data.seed={seed}"],
    figures=[Bars("test/wer"), Curves(("dev/wer",), baseline="seed")],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
