"""Gao et al., table 1, central: all speech, and the clients' speech only, from the warmed-up model (the seed model).

python sweeps/gao_central.py
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="gao_central",
    question="How good is a recogniser trained on all speech in one place?",
    base="configs/gao/{speech of}.yaml",
    names={"speech of": {"all": "baselines/central", "the second half": "baselines/central_second_half"}},
    space={"speech of": tune.grid_search(["all", "the second half"]), "seed": tune.grid_search([0, 1, 2])},
    settings=["data.seed={seed}"],
    figures=[Bars("test/wer"), Curves(("dev/wer",), baseline="seed")],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
