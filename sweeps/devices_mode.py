"""What waiting costs FedNST: WER over virtual hours in rounds, with over-selection, and without rounds (FedBuff).

    python sweeps/devices_mode.py

The seed draws the phones too. `python sweeps/devices_mode.py devices.spread=1.5` makes them differ more.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="devices_mode",
    question="How long do rounds take on phones, and who waits for whom?",
    base="configs/devices/{mode}.yaml",
    names={
        "mode": {
            "rounds of 6": "fednst_waiting",
            "the first 6 of 8": "fednst_rounds",
            "every third arrival": "fednst_buffered",
        }
    },
    space={
        "mode": tune.grid_search(["rounds of 6", "the first 6 of 8", "every third arrival"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    figures=[
        Curves(("dev/wer",), over="hours", baseline="seed"),
        Curves(("dev/wer",), over="device_hours", baseline="seed"),
        Curves(("dev/wer",), baseline="seed"),
        Bars("test/wer"),
    ],
    reference="rounds of 6",
    small=["rounds=2", "algorithm.pretrain.steps=50", "data.options.client_speakers=12"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
