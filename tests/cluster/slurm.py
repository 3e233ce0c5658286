"""A Slurm of one job for tests: it runs a batch script as slurmd does. Slurm's commands only write down their words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOB = 4321
COMMANDS = {
    "scontrol": 'echo "$*" >> "$FAKE/requeued"',
    "squeue": 'cat "$FAKE/state"',
    # The other node has temporary folders of its own. All options are --name=value.
    "srun": 'while [[ $1 == --* ]]; do echo "$1" >> "$FAKE/srun"; shift; done\n'
    'export RAY_TMPDIR=${RAY_TMPDIR}b SLURM_STEP_TASKS_PER_NODE=1\nexec "$@"',
    "fedray": f'exec {sys.executable} -m fedray.cli "$@"',
}


class Slurm:
    """Runs a script of `slurm/` again and again while it is requeued. Its fakes note what they are asked in `fakes`."""

    def __init__(self, folder: Path, nodes: int = 1, **commands: str) -> None:
        self.fakes = folder / "slurm"
        binaries = self.fakes / "bin"
        binaries.mkdir(parents=True)
        for name, text in (COMMANDS | commands).items():
            (binaries / name).write_text(f"#!/bin/bash\n{text}\n")
            (binaries / name).chmod(0o755)
        self.set_state("RUNNING")
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        job = {"SLURM_JOB_ID": JOB, "SLURM_JOB_NUM_NODES": nodes, "SLURM_CPUS_ON_NODE": 1, "SLURM_CPUS_PER_TASK": 1}
        path = f"{binaries}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = own | {name: str(value) for name, value in job.items()}
        self.environment |= {"PATH": path, "FAKE": str(self.fakes), "SLURM_SUBMIT_DIR": str(ROOT)}
        self.process: subprocess.Popen[str] | None = None

    def set_state(self, state: str) -> None:
        """What `squeue` says of the job."""
        (self.fakes / "state").write_text(f"{state}\n")

    def start(self, *words: str | Path, script: str = "fedray.sbatch", **variables: str) -> subprocess.Popen[str]:
        """Start the job's script; its output goes on in `fakes/out`."""
        with (self.fakes / "out").open("a") as out:
            self.process = subprocess.Popen(
                ["bash", str(ROOT / "slurm" / script), *map(str, words)],
                env=self.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                process_group=0,
            )
        return self.process

    def terminate(self) -> None:
        """SIGTERM to the script alone, as `--signal=B:TERM` has it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def requeued(self) -> list[str]:
        """What `scontrol` was asked since the last call."""
        asked = self.fakes / "requeued"
        words = asked.read_text().splitlines() if asked.exists() else []
        asked.unlink(missing_ok=True)
        return words

    def said(self) -> str:
        return (self.fakes / "out").read_text()

    def close(self) -> None:
        """Kill what is left of the job."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def rounds_of(run: Path) -> int:
    """How many rounds a run has written."""
    rows = run / "metrics.jsonl"
    return len(rows.read_text().splitlines()) if rows.exists() else 0
