"""Gao et al., figure 3: 10 to 100 of 4,085 clients per round, weighted by examples, by loss and by WER.

    python sweeps/gao_clients.py

80 rounds, without fine-tuning on the server, 300 speakers in test, as in `gao_rates`. Three seeds, of the corpus and
of the training. A run takes ten times as long with 100 clients as with 10.
"""

import sys

from fedray.report.figures import Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="gao_clients",
    question="How many clients does a round need, and does it depend on the weighting?",
    base="configs/gao/ablations/clients_4k.yaml",
    names={"weighted by": {"examples": "by_examples", "loss": "by_loss", "WER": "by_wer"}},
    space={
        "weighted by": tune.grid_search(["examples", "loss", "WER"]),
        "cohort.size": tune.grid_search([10, 20, 50, 100]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=[
        "data.seed={seed}",
        "strategy.kind={weighted by}",
        "rounds=80",
        "algorithm.server_finetune=false",
        "data.options.test_speakers=300",
        "data.options.test_utterances=4",
    ],
    figures=[Trend("cohort.size", "test/wer"), Curves(("dev/wer",), baseline="seed"), Curves(("clients/effective",))],
    small=[
        "rounds=2",
        "data.options.client_speakers=300",
        "algorithm.pretrain.steps=50",
        "cohort.size=10",
        "data.options.test_speakers=10",
    ],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
