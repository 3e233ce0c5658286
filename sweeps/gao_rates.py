"""Gao et al., table 1: does the order of the weightings depend on the clients' rate?

    python sweeps/gao_rates.py
    python sweeps/gao_rates.py rounds=80

The rate of configs/gao/embedded.yaml was chosen on dev for weights by examples, which give most to the clients with
the most steps, and so the longest updates. Here each weighting is compared at its best rate. One speaker per client,
without fine-tuning on the server, 300 speakers in test.
"""

import sys

from fedray.report.figures import Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="gao_rates",
    question="Which rate of the clients suits each weighting?",
    base="configs/gao/embedded.yaml",
    names={"weighted by": {"examples": "by_examples", "loss": "by_loss", "WER": "by_wer"}},
    space={
        "weighted by": tune.grid_search(["examples", "loss", "WER"]),
        "algorithm.client.lr": tune.grid_search([0.15, 0.3, 0.45, 0.6, 0.9]),
    },
    settings=[
        "strategy.kind={weighted by}",
        "rounds=20",
        "algorithm.server_finetune=false",
        "data.options.test_speakers=300",
        "data.options.test_utterances=4",
    ],
    figures=[
        Trend("algorithm.client.lr", "dev/wer"),
        Trend("algorithm.client.lr", "test/wer"),
        Curves(("dev/wer",), baseline="seed"),
    ],
    small=["rounds=2", "algorithm.pretrain.steps=50", "data.options.test_speakers=10"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
