"""Du et al., tables 1 and 4: adapters and full fine-tuning, federated and central, on dialects and domains.

python sweeps/fedlora_methods.py

benchmarks/studies/fedlora.py has the rows with a memory and those with clients that join later: its runs start from
the model of another run, and its central rows have their own rates, chosen on dev. Here central training has the
federation's constant rate, although its one client takes as many steps a round as all clients together.
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
            "dialects, whole": "baselines/fedavg",
            "domains, adapters": "embedded_domains",
            "domains, whole": "baselines/fedavg_domains",
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
