"""FedMem with 4,000 clients: each fills its memory, then scores 135 settings of k, lambda and temperature on dev.

    python -m benchmarks.studies.fedmem_4k [--runs runs/study-fedmem-4k]

Corpus and seed model are made first. Memory is the proportional set size of all processes of the run, sampled every
second; disk is the size of the clients' states.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ray

from benchmarks import study
from benchmarks.engine import runs as engine_runs
from fedray import experiment
from fedray.engine.driver import session

CONFIG = "configs/fedmem/ablations/clients_4k.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs", type=Path, default=study.ROOT / "runs" / "study-fedmem-4k", help="where the run folder is kept"
    )
    chosen = parser.parse_args()
    session.connect()
    config, source = experiment.load(study.ROOT / CONFIG)
    data, _ = experiment.build_data(config, source, session.parallel)
    settings = len(config.algorithm.settings.retrievals())
    with engine_runs.Memory(1.0) as memory:
        results = study.run(CONFIG, [], chosen.runs / "4k")
    ray.shutdown()
    (row,) = study.rounds(chosen.runs / "4k")
    disk = sum(path.stat().st_size for path in (chosen.runs / "4k" / "states").rglob("*") if path.is_file())
    personal, clients = results["personal"], results["personal"]["clients"]
    found = {
        "clients": clients,
        "settings": settings,
        "pairs of a client": row["train/pairs"],
        "remembering (s)": row["time/round_s"],
        "scoring (s)": results["time/personal_s"],
        "peak memory (GB)": sum(memory.peak().values()) / 1e9,  # 0: the run had finished before
        "disk (MB)": disk / 1e6,
        "dev utterances": len(data.evaluation("dev")),
        "test WER, alone": personal["test/wer_alone"],
        "test WER, with memory": personal["test/wer"],
    }
    rows = [{"measured": name, "value": value} for name, value in found.items()]
    text = f"# FedMem with {clients:,} clients\n\n{study.table(rows)}"
    study.write("fedmem_4k", text, {"found": found}, "python -m benchmarks.studies.fedmem_4k", [0])
    print(text)


if __name__ == "__main__":
    main()
