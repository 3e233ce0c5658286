"""Gao et al. with 4,085 clients, 100 of them a round: seconds, memory, and the cost of measuring the clients' WER.

    python -m benchmarks.studies.gao_4k [--rounds 4] [--runs runs/study-gao-4k]

Three runs of a few rounds, one per weighting, start from the same warmed-up model. Memory is the proportional set size
of all processes of a run, sampled every second. Then this process measures the CPU seconds of a client's training and
of scoring its model on 100 central utterances: for a client with 40 utterances, and for drawn clients of the 4,085
(mean).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import ray

from benchmarks import study
from benchmarks.engine import runs as engine_runs
from fedray import experiment
from fedray.core.strategies import ByExamples, ByWer
from fedray.core.types import Client, Received, Server
from fedray.engine.driver import session
from fedray.engine.jobs import work

CONFIG = "configs/gao/ablations/clients_4k.yaml"
WEIGHTS = {"examples": "by_examples", "loss": "by_loss", "WER": "by_wer"}
TYPICAL, DRAWN, REPEATS = 40, 30, 5  # utterances of a client; clients of the 4,085; measurements of each


def play(kind: str, rounds: int, runs: Path) -> dict[str, Any]:
    with engine_runs.Memory(1.0) as memory:
        results = study.run(CONFIG, [f"strategy.kind={kind}", f"rounds={rounds}"], runs / kind)
    rows = study.rounds(runs / kind)
    return {
        "seed": results["seed"],
        "best": results["best"],
        "seconds": [row["time/round_s"] for row in rows],
        "effective": mean(row["clients/effective"] for row in rows),
        "peak": sum(memory.peak().values()),  # 0: the run had finished before
    }


def costs() -> dict[str, dict[str, float]]:
    """Median CPU seconds of training and of measuring, for a client of 40 utterances and for drawn clients."""
    config, source = experiment.load(study.ROOT / CONFIG, ["strategy.kind=by_wer", "algorithm.pretrain.steps=50"])
    data, _ = experiment.build_data(config, source)
    algorithm = experiment.build_algorithm(config, data)
    state = algorithm.init(Server(data.server(), None, 0))
    broadcast = algorithm.broadcast(state, 0)
    received = Received(broadcast.params, broadcast.settings, 0, algorithm.assets(data))
    server = data.server().take(range(TYPICAL))
    drawn = [data.load(name) for name in data.client_ids()[:: len(data.client_ids()) // DRAWN]]
    found = {}
    for name, clients in ((f"{TYPICAL} utterances", [server]), ("one of the 4,085", drawn)):
        spent: dict[str, list[float]] = {"trained": [], "both": []}
        for _ in range(REPEATS):
            for part, strategy in (("trained", ByExamples()), ("both", ByWer())):  # in turns, on the same machine
                algorithm.strategy = strategy
                start = time.process_time()
                for place, utterances in enumerate(clients):
                    work.seed_all(0, str(place))
                    algorithm.client_update(Client(str(place), utterances, 0, None), received)
                spent[part].append((time.process_time() - start) / len(clients))
        both = median(spent["both"])
        measuring = median(one - other for one, other in zip(spent["both"], spent["trained"], strict=True))
        found[name] = {
            "utterances": mean(map(len, clients)),
            "seconds": both,
            "measuring": measuring,
            "share": measuring / both,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        f"python -m {__spec__.name}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--runs", type=Path, default=study.ROOT / "runs" / "study-gao-4k", help="where the run folders are kept"
    )
    chosen = parser.parse_args()
    session.connect()
    runs = {words: play(kind, chosen.rounds, chosen.runs) for words, kind in WEIGHTS.items()}
    spent = costs()
    ray.shutdown()
    rows = [
        {
            "weighted by": words,
            "seconds a round": f"{median(one['seconds']):.1f}",
            "peak memory (GB)": f"{one['peak'] / 1e9:.1f}",
        }
        | {"effective clients": f"{one['effective']:.1f} of 100", "test WER after the warm-up": one["seed"]["test/wer"]}
        | {f"test WER after {chosen.rounds} rounds, best by dev": one["best"]["test/wer"]}
        for words, one in runs.items()
    ]
    cost = [
        {
            "client": name,
            "utterances": one["utterances"],
            "CPU seconds": f"{one['seconds']:.2f}",
            "spent on measuring (%)": 100 * one["share"],
        }
        for name, one in spent.items()
    ]
    text = f"# Gao et al. with 4,085 clients, 100 a round\n\n{study.table(rows)}\n\n"
    text += "The cost of measuring a client's WER on 100 central utterances:\n\n"
    study.write("gao_4k", text + study.table(cost), {"runs": runs, "costs": spent}, study.command(parser, chosen), [0])
    print(text + study.table(cost))


if __name__ == "__main__":
    main()
