"""What bounds by layer gain: WER of FedAvg with one bound and with a bound per layer, with SGD and LAMB on the server.

python sweeps/privacy_layers.py

All trials have the noise of epsilon 2, as if a round had 25,000 of 1,000,000 clients.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="privacy_layers",
    question="Should each layer have a bound of its own?",
    base="configs/privacy/embedded.yaml",
    names={"optimizer": {"SGD": "{kind: sgd, lr: 1.0}", "LAMB": "{kind: lamb, lr: 0.006}"}},
    settings=["privacy.epsilon=2", "server_optimizer={optimizer}"],
    space={
        "privacy.clip.layers": tune.grid_search(["global", "uniform", "dim"]),
        "optimizer": tune.grid_search(["SGD", "LAMB"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    figures=[Curves(("dev/wer",), baseline="seed"), Bars("test/wer"), Curves(("privacy/snr",), log=True)],
    small=["rounds=2", "cohort.fraction=0.2", "data.options.client_speakers=40", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
