"""Gao et al.: weighting by loss and by WER with several temperatures, where 40 % of the clients have wrong transcripts.

    python sweeps/gao_wrong.py

exp(1 - wer) on fractions, as the paper prints it, has temperature 1; the authors' code takes percent: 0.01.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

ARMS = {
    "examples": "{kind: by_examples}",
    "loss, 1": "{kind: by_loss, temperature: 1.0}",
    "loss, 0.1": "{kind: by_loss, temperature: 0.1}",
    "WER, 1": "{kind: by_wer, temperature: 1.0}",
    "WER, 0.05": "{kind: by_wer, temperature: 0.05}",
    "WER, 0.01": "{kind: by_wer, temperature: 0.01}",
}

SWEEP = Sweep(
    name="gao_wrong",
    question="Does weighting by WER protect against clients with wrong transcripts?",
    base="configs/gao/ablations/wrong_transcripts.yaml",
    names={"weighted by": ARMS},
    space={"weighted by": tune.grid_search(list(ARMS)), "seed": tune.grid_search([0, 1, 2])},
    settings=["strategy={weighted by}", "data.seed={seed}"],
    figures=[Bars("test/wer"), Curves(("dev/wer",), baseline="seed"), Curves(("clients/effective",))],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
