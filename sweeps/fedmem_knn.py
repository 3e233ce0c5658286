"""FedMem: k, lambda and temperature on each client's dev; every trial retrieves once for the largest k, and scores all 135 from that.

python sweeps/fedmem_knn.py

It is the server's own model that remembers; `model.init=RUN/model/model.pt algorithm.pretrain.steps=0` asks it of another.
"""

import sys

from fedray.report.figures import Bars, Own, Retrievals
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedmem_knn",
    question="How many neighbours, how much of what they say, and how sharply?",
    base="configs/fedmem/{clients}.yaml",
    names={"clients": {"four dialects": "embedded", "ten domains": "embedded_domains"}},
    space={"clients": tune.grid_search(["four dialects", "ten domains"]), "seed": tune.grid_search([0, 1, 2])},
    settings=["data.seed={seed}", "algorithm.costs=true"],
    figures=[Retrievals(), Bars("own/test/wer"), Own()],
    small=["algorithm.pretrain.steps=50", "data.options.client_utterances=5"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
