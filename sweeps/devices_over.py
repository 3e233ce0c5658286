"""Over-selection: how many more clients than it needs should the server choose, and what do slow clients lose by it?

python sweeps/devices_over.py
"""

import sys

from fedray.report.figures import Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="devices_over",
    question="How many more clients than it needs should the server choose?",
    base="configs/devices/fednst_rounds.yaml",
    space={"clock.over": tune.grid_search([1.0, 1.3, 2.0, 3.0]), "seed": tune.grid_search([0, 1, 2])},
    figures=[
        Curves(("dev/wer",), over="hours", baseline="seed"),
        Trend("clock.over", "dev/wer"),
        Trend("clock.over", "virtual/hours"),
        Trend("clock.over", "virtual/wasted_share"),
    ],
    small=["rounds=2", "algorithm.pretrain.steps=50", "data.options.client_speakers=24"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
