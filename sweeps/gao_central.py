"""Gao et al., table 1, central training from the warmed-up model (the seed model).

On all speech, on the clients' speech alone, and on the server's alone, which continues the warm-up; the first two also
with the clients' SGD.

python sweeps/gao_central.py
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

ARMS = {
    "all": "baselines/central",
    "the second half": "baselines/central_second_half",
    "the first half": "baselines/warm_up_continued",
    "all, SGD": "baselines/central_sgd",
    "the second half, SGD": "baselines/central_second_half_sgd",
}

SWEEP = Sweep(
    name="gao_central",
    question="How good is a recogniser trained on all speech in one place?",
    base="configs/gao/{speech of}.yaml",
    names={"speech of": ARMS},
    space={"speech of": tune.grid_search(list(ARMS)), "seed": tune.grid_search([0, 1, 2])},
    settings=["data.seed={seed}"],
    figures=[Bars("test/wer"), Curves(("dev/wer",), baseline="seed")],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
