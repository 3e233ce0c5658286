"""FedLoRA: the rank of the adapters, with alpha = 2 r as in the paper, at three learning rates.

    python sweeps/fedlora_rank.py
    python sweeps/fedlora_rank.py algorithm.averaging=product

With one alpha for all ranks, a larger rank would have a smaller scale alpha / r. Runs train to patience: 5 to 20
minutes each on two cores. The figure has a line for each rate; the lowest point at a rank is its best.
benchmarks/studies/fedlora_long.py chooses the rate of a rank by dev, and compares ranks at equal bytes.
"""

import sys

from fedray.report.figures import Bars, Curves, Trend
from fedray.sweep import Sweep, main, tune

RANKS = [1, 2, 4, 8, 16]

SWEEP = Sweep(
    name="fedlora_rank",
    question="How small may adapters be?",
    base="configs/fedlora/embedded.yaml",
    space={
        "algorithm.lora.rank": tune.grid_search(RANKS),
        "algorithm.client.lr": tune.grid_search([2.5e-3, 5e-3, 1e-2]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    names={"algorithm.lora.rank": {str(rank): str(2 * rank) for rank in RANKS}},
    settings=["data.seed={seed}", "algorithm.lora.alpha={algorithm.lora.rank}", "rounds=200", "evaluation.patience=20"],
    figures=[
        Trend("algorithm.lora.rank", by="algorithm.client.lr", log=True),
        Bars("traffic/total_bytes"),
        Curves(("dev/wer",), baseline="seed"),
    ],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
