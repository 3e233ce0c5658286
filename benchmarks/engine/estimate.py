"""Time, traffic and disk of a run: what `fedray doctor --estimate` predicts against what the run takes.

    python -m benchmarks.engine.estimate        # about 8 minutes on two cores; nothing else should run

Each study starts with an empty cache. The estimate makes the corpus and the features, and the run uses them.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import ray

from benchmarks.study import ROOT, table, write
from fedray import experiment
from fedray.doctor.estimate import estimate
from fedray.storage.opening import open_storage

STUDIES = {
    "configs/fednst/embedded.yaml": ["rounds=4"],
    "configs/fedavg/keywords.yaml": ["rounds=10"],
}


def compare(config: str, overrides: list[str], home: Path) -> dict[str, tuple[float, float]]:
    """Quantity -> (estimated, measured)."""
    os.environ["FEDRAY_CACHE"] = str(home / "cache")
    expected, *_ = estimate(*experiment.load(ROOT / config, overrides), print)
    print({part: round(seconds, 1) for part, seconds in expected.seconds.items()}, flush=True)
    ray.shutdown()
    since = time.perf_counter()
    results = experiment.run(ROOT / config, overrides, out=home / "run").results
    took = time.perf_counter() - since
    ray.shutdown()
    folder = open_storage(home / "run")
    written = sum(
        len(folder.read(f"{part}/{name}")) for part in ("states", "checkpoints") for name in folder.files(part)
    )
    return {
        "seconds": (sum(expected.seconds.values()), took),
        "MB up": (expected.up / 1e6, results["traffic/up_bytes"] / 1e6),
        "MB down": (expected.down / 1e6, results["traffic/down_bytes"] / 1e6),
        "MB of states and checkpoints": (
            (expected.disk["checkpoints"] + expected.disk["client states"]) / 1e6,
            written / 1e6,
        ),
    }


def main() -> None:
    found = {}
    for config, overrides in STUDIES.items():
        with tempfile.TemporaryDirectory() as home:
            found[" ".join([config, *overrides])] = compare(config, overrides, Path(home))
            print(found, flush=True)
    rows = [
        {
            "run": f"`{run}`",
            "": what,
            "estimated": f"{one:.1f}",
            "measured": f"{other:.1f}",
            "ratio": f"{one / other:.2f}",
        }
        for run, pairs in found.items()
        for what, (one, other) in pairs.items()
    ]
    write(
        "estimate",
        f"# Estimates against runs\n\n{table(rows)}",
        {"found": found},
        "python -m benchmarks.engine.estimate",
        [0],
    )


if __name__ == "__main__":
    main()
