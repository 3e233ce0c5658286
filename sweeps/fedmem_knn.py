"""Du et al., section 3.1.2: k, lambda and temperature of FedMem, chosen on each client's dev.

python sweeps/fedmem_knn.py

Each trial retrieves neighbours once for the largest k, and scores all 135 settings on them. The memory comes from the
server's seed model; `model.init=RUN/model/model.pt algorithm.pretrain.steps=0` takes the model of another run.
"""

import sys

from fedray.report.figures import Bars, Personal, Retrievals
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmem_knn",
    question="Which k, lambda and temperature suit FedMem?",
    base="configs/fedmem/{clients}.yaml",
    names={
        "clients": {
            "four dialects": "embedded",
            "ten domains": "embedded_domains",
            "4,000 speakers": "ablations/clients_4k",
        }
    },
    space={
        "clients": tune.grid_search(["four dialects", "ten domains", "4,000 speakers"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "algorithm.costs=true"],
    figures=[Retrievals(), Bars("personal/test/wer"), Personal()],
    small=["algorithm.pretrain.steps=50", "data.options.client_utterances=5"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
