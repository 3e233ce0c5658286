"""Gao et al., table 1, central: everybody's speech, and the clients' speech alone, from the warmed-up model; that model is the seed's row.

python sweeps/gao_central.py
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="gao_central",
    question="How good could the recogniser be if all speech were in one place?",
    base="configs/gao/{speech of}.yaml",
    names={"speech of": {"all": "embedded_all", "the second half": "embedded_second_half"}},
    space={"speech of": tune.grid_search(["all", "the second half"]), "seed": tune.grid_search([0, 1, 2])},
    settings=["data.seed={seed}"],
    figures=[Bars("test/wer"), Curves(("dev/wer",), baseline="seed")],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
