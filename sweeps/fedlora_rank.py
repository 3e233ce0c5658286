"""FedLoRA: the rank of the adapters, and the averaging of factors or products.

python sweeps/fedlora_rank.py
"""

import sys

from fedray.report.figures import Bars, Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedlora_rank",
    question="How small may adapters be?",
    base="configs/fedlora/embedded.yaml",
    space={
        "algorithm.lora.rank": tune.grid_search([1, 2, 4, 8]),
        "algorithm.averaging": tune.grid_search(["factors", "product"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}"],
    figures=[
        Trend("algorithm.lora.rank", log=True),
        Bars("traffic/total_bytes"),
        Curves(("dev/wer",), baseline="seed"),
    ],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
