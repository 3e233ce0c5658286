"""The same workload in other frameworks: their scripts, run with the Python of a separate environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engine.floor import Workload

LIMIT_SECONDS = 900.0
# Name -> script, whether it runs one process a core, and how many of the rounds it prints do not count.
SCRIPTS = {"pfl-research": ("pfl_run.py", True, 0), "Flower": ("flower_run.py", False, 1)}


@dataclass(frozen=True)
class Peers:
    environment: Path  # a virtual environment with the frameworks
    scripts: Path

    def versions(self) -> dict[str, str]:
        names = "('pfl', 'flwr', 'torch', 'ray')"
        code = f"import json, importlib.metadata as m; print(json.dumps({{n: m.version(n) for n in {names}}}))"
        command = [self.environment / "bin/python", "-c", code]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def measure(self, peer: str, model: str, workload: Workload, rounds: int, processes: int) -> list[float]:
        """Seconds of each round after the first."""
        script, many, skipped = SCRIPTS[peer]
        torchrun = [self.environment / "bin/torchrun", "--standalone", "--nnodes=1", f"--nproc_per_node={processes}"]
        command = [*map(str, torchrun if many else [self.environment / "bin/python"]), str(self.scripts / script)]
        sizes = {
            "MODEL": model,
            "CLIENTS": workload.clients,
            "COHORT": workload.cohort,
            "SAMPLES": workload.clips,
            "ROUNDS": rounds,
        }
        environment = os.environ | {name: str(value) for name, value in sizes.items()}
        environment |= {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local", "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PATH"] = f"{self.environment / 'bin'}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        printed = re.findall(r"^rounds (\[.*\])$", done.stdout, re.MULTILINE)
        if done.returncode or not printed:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(printed[-1])[skipped:]
