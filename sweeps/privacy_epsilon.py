"""What privacy costs: WER of FedAvg under epsilon 1 to 8 and without privacy, as if drawn from a million clients.

python sweeps/privacy_epsilon.py

Epsilon holds for the federation that `privacy.as_if` names: 25,000 of 1,000,000 clients a round.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="privacy_epsilon",
    question="What does privacy cost?",
    base="configs/privacy/embedded.yaml",
    names={
        "guarantee": {
            "epsilon 1": "{kind: gaussian, epsilon: 1}",
            "epsilon 2": "{kind: gaussian, epsilon: 2}",
            "epsilon 4": "{kind: gaussian, epsilon: 4}",
            "epsilon 8": "{kind: gaussian, epsilon: 8}",
            "bounds without noise": "{kind: gaussian, epsilon: null, noise: 0}",
            "none": "{kind: none}",
        }
    },
    settings=["privacy={guarantee}"],
    space={
        "guarantee": tune.grid_search(
            ["epsilon 1", "epsilon 2", "epsilon 4", "epsilon 8", "bounds without noise", "none"]
        ),
        "seed": tune.grid_search([0, 1, 2]),
    },
    figures=[Curves(("dev/wer",), baseline="seed"), Bars("test/wer"), Curves(("privacy/snr",), log=True)],
    small=["rounds=2", "cohort.fraction=0.2", "data.options.client_speakers=40", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
