"""Staleness: how much should an update from an old model count, with few and with many clients training at a time?

python sweeps/devices_staleness.py
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="devices_staleness",
    question="How much should an update count that started from an old model?",
    base="configs/devices/fednst_buffered.yaml",
    names={
        "staleness": {
            "in full": "{kind: constant}",
            "1 / sqrt(1 + tau)": "{kind: polynomial, exponent: 0.5}",
            "1 / (1 + tau)": "{kind: polynomial, exponent: 1}",
            "in full up to 4": "{kind: hinge, slope: 10, above: 4}",
        }
    },
    settings=["clock.staleness={staleness}"],
    space={
        "staleness": tune.grid_search(["in full", "1 / sqrt(1 + tau)", "1 / (1 + tau)", "in full up to 4"]),
        "clock.concurrency": tune.grid_search([8, 24]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    figures=[
        Curves(("dev/wer",), over="hours", baseline="seed"),
        Curves(("virtual/staleness",)),
        Bars("test/wer"),
    ],
    small=["rounds=2", "algorithm.pretrain.steps=50", "data.options.client_speakers=30"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
