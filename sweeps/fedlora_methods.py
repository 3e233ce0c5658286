"""Du et al., tables 1 and 4: adapters against the whole model, federated and central, on dialects and on domains.

python sweeps/fedlora_methods.py

The tables with a memory on top, and with the clients that join afterwards, are benchmarks/fedlora_tables.py's: there each run starts from
the model that another has left.
"""

import sys

from fedray.report.figures import Bars, Curves
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fedlora_methods",
    question="What do adapters save, and what do they cost?",
    base="configs/fedlora/{tuned}.yaml",
    names={
        "tuned": {
            "dialects, adapters": "embedded",
            "dialects, whole": "embedded_full",
            "domains, adapters": "embedded_domains",
            "domains, whole": "embedded_domains_full",
        },
        "trained": {"federated": "{by: label}", "centrally": "{by: iid, count: 1}"},
    },
    space={
        "tuned": tune.grid_search(["dialects, adapters", "dialects, whole", "domains, adapters", "domains, whole"]),
        "trained": tune.grid_search(["federated", "centrally"]),
        "seed": tune.grid_search([0, 1, 2]),
    },
    settings=["data.seed={seed}", "data.clients={trained}"],
    figures=[Bars("test/wer"), Bars("traffic/total_bytes"), Curves(("dev/wer",), baseline="seed")],
    small=["rounds=2", "algorithm.pretrain.steps=50"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
