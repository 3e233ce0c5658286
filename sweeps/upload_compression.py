"""What smaller uploads cost FedNST: WER of each code of the clients' updates, with and without error feedback.

python sweeps/upload_compression.py
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

CODES = {
    "none": "{kind: none}",
    "half": "{kind: half}",
    "int8": "{kind: int8}",
    "int4": "{kind: int4}",
    "top 10 %": "{kind: topk, share: 0.1, values: int8}",
    "top 5 %": "{kind: topk, share: 0.05, values: int8}",
    "top 1 %": "{kind: topk, share: 0.01, values: int8}",
}
# Half precision loses too little for feedback to matter.
WITHOUT = {f"{name}, no feedback": f"{text[:-1]}, feedback: false}}" for name, text in [*CODES.items()][2:]}

SWEEP = Sweep(
    name="upload_compression",
    question="How few bytes may clients send?",
    base="configs/fednst/embedded.yaml",
    names={"code": CODES | WITHOUT},
    settings=["upload={code}"],
    space={
        "code": tune.grid_search([*CODES, *WITHOUT]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    figures=[
        Bars("test/wer"),
        Bars("traffic/up_bytes"),
        Curves(("dev/wer",), baseline="seed"),
        Curves(("dev/wer",), over="bytes", baseline="seed"),
    ],
    reference="none",
    small=["rounds=2", "algorithm.pretrain.steps=50", "data.options.client_speakers=12"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
