"""FedLoRA: the precision of updates, with error feedback.

python sweeps/fedlora_upload.py
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedlora_upload",
    question="How coarse may updates be?",
    base="configs/fedlora/embedded.yaml",
    space={
        "upload.kind": tune.grid_search(["none", "half", "int8"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}"],
    figures=[Bars("test/wer"), Bars("traffic/total_bytes"), Curves(("dev/wer",), baseline="seed")],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
