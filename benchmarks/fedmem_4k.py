"""FedMem's sweep over 4,000 clients: each remembers its own utterances, then scores 135 settings of k, lambda and temperature on dev.

    python benchmarks/fedmem_4k.py [--runs runs/study-fedmem-4k]

Corpus and seed model are made before. Memory is the proportional set size of all processes of the run, every second; disk is what the
clients keep.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import engine_runs
import ray
import study

from fedray import experiment, programs
from fedray.engine import session

CONFIG = "configs/fedmem/embedded_4k.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=study.ROOT / "runs" / "study-fedmem-4k", help="where the run folder is kept")
    chosen = parser.parse_args()
    session.connect()
    config, source = experiment.load(study.ROOT / CONFIG)
    data, _ = programs.build_data(config, source, session.parallel)
    settings = len(config.algorithm.retrievals())
    with engine_runs.Memory(1.0) as memory:
        results = study.run(CONFIG, [], chosen.runs / "4k")
    ray.shutdown()
    (row,) = study.rounds(chosen.runs / "4k")
    disk = sum(path.stat().st_size for path in (chosen.runs / "4k" / "states").rglob("*") if path.is_file())
    own, clients = results["own"], results["own"]["clients"]
    found = {
        "clients": clients,
        "settings": settings,
        "pairs of a client": row["train/pairs"],
        "remembering (s)": row["time/round_s"],
        "scoring (s)": results["time/own_s"],
        "peak memory (GB)": sum(memory.peak().values()) / 1e9,  # 0: the run was found finished
        "disk (MB)": disk / 1e6,
        "dev utterances": len(data.evaluation("dev")),
        "test WER, alone": own["test/wer_alone"],
        "test WER, with memory": own["test/wer"],
    }
    text = f"# FedMem's sweep over {clients:,} clients\n\n{study.table([{'what': name, 'found': value} for name, value in found.items()])}"
    study.write("fedmem_4k", text, {"found": found}, "python benchmarks/fedmem_4k.py", [0])
    print(text)


if __name__ == "__main__":
    main()
