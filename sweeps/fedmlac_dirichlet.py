"""FedMLAC, table 4: fifty clients whose classes are skewed by Dirichlet draws, from alpha 0.1 to 1.

    python sweeps/fedmlac_dirichlet.py

Embedded sound events stand in for UrbanSound8K, the corpus on which the paper varies alpha. The paper's other tables
use the third of its four alphas, whose values its text lacks: 0.1, 0.3, 0.5 and 1 are ours. On UrbanSound8K, one alpha
at a time and with the paper's settings:

    python sweeps/fedmlac_methods.py data.corpus=urbansound8k data.root=/corpora "data.options={test_folds: [3]}" \
        "data.clients={by: dirichlet, count: 50, alpha: 0.1, min_utterances: 5}" task.window=1 rounds=5000 \
        "algorithm.client={lr: 0.01, batch: 16, epochs: 1, clip: null}" evaluation.every=50 evaluation.personal_every=50

Scores are those of `fedmlac_methods.py`; the paper's is macro-F1. Three seeds, of the corpus and of the training.
"""

import sys

from fedray.report.figures import Bars, Curves, Trend
from fedray.sweep import Sweep, main, tune

ALPHAS = [0.1, 0.3, 0.5, 1.0]
SOUNDS = (
    "{kind: events, server_speakers: 0, client_speakers: 400, client_utterances: 10, dev_speakers: 40, "
    "dev_utterances: 10, test_speakers: 80, test_utterances: 10, test_server_speakers: 0}"
)

SWEEP = Sweep(
    name="fedmlac_dirichlet",
    question="Do personal models serve clients with skewed classes better than one shared model?",
    base="configs/fedmlac/{method}.yaml",
    names={
        "method": {
            "FedAvg": "baselines/fedavg",
            "FedProx": "baselines/fedprox",
            "FedOpt": "baselines/fedopt",
            "FedMLAC": "embedded",
        },
    },
    space={
        "method": tune.grid_search(["FedAvg", "FedProx", "FedOpt", "FedMLAC"]),
        "data.clients.alpha": tune.grid_search(ALPHAS),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=[
        "data.seed={seed}",
        f"data.options={SOUNDS}",
        "data.clients={by: dirichlet, count: 50, alpha: 1, min_utterances: 5}",
        "task.window=1.0",
    ],
    metric="personal/macro_f1",
    mode="max",
    figures=[
        Trend("data.clients.alpha", "personal/test/macro_f1", by="method", log=True),
        Trend("data.clients.alpha", "test/macro_f1", by="method", log=True),
        Bars("personal/test/accuracy"),
        Curves(("personal/macro_f1", "dev/macro_f1")),
    ],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
