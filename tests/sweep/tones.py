"""A sweep for tests, based on tones.yaml in the working folder: python tones.py [options]."""

import sys

from fedray.report.figures import Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="tones",
    question="How fast?",
    base="tones.yaml",
    space={"algorithm.client.lr": tune.grid_search([0.05, 0.2])},
    figures=[Curves(("dev/wer",))],
    small=["rounds=2"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
