"""Check the scripts in slurm/ with Slurm itself on this machine: jobs that end before their time, and an array.

    make slurm-check    # as root, with Debian's slurmctld, slurmd, slurm-client and munge; four minutes on two cores

It compares the bits of runs that were requeued and resumed with those of a straight run.
It starts Slurm's daemons with a configuration of their own in a temporary folder, on ports that are free, and ends them
afterwards. Another Slurm on the machine is not touched. Not part of `make test`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

import yaml

from tests.cluster.slurm import ROOT, rounds_of
from tests.engine.runs import same
from tests.small_corpus import patient_run

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "squeue")
CORES, MEMORY = 2, 6000  # of the node; memory in MB
ROUNDS, SECONDS = 40, 240  # of the run that is ended; the longest wait
# Slurm holds a requeued job back until the credential of its first start has expired, two minutes usually.
CONFIGURATION = f"""
ClusterName=fedray
SlurmctldHost={{host}}(127.0.0.1)
SlurmctldPort={{controller}}
SlurmdPort={{daemon}}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={{folder}}/munge/socket,cred_expire=5
StateSaveLocation={{folder}}/state
SlurmdSpoolDir={{folder}}/spool
SlurmctldPidFile={{folder}}/slurmctld.pid
SlurmdPidFile={{folder}}/slurmd.pid
SlurmctldLogFile={{folder}}/slurmctld.log
SlurmdLogFile={{folder}}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={{host}} NodeAddr=127.0.0.1 CPUs={CORES} RealMemory={MEMORY}
PartitionName=usual Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF
"""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def until(what: str, there: Callable[[], bool], seconds: float = SECONDS) -> None:
    """RuntimeError: it has not come about after so many seconds."""
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Slurm:
    """Slurm's daemons for one node, which is this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.daemons = folder, list[subprocess.Popen[bytes]]()
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir(mode=0o755)
        self.key = folder / "munge" / "key"
        self.key.write_bytes(os.urandom(128))
        self.key.chmod(0o600)
        ports = {"controller": free_port(), "daemon": free_port()}
        text = CONFIGURATION.format(folder=folder, host=socket.gethostname(), **ports)
        (folder / "slurm.conf").write_text(text)
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own |= {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path, "PYTHONPATH": str(ROOT)}
        self.environment = own | {"FEDRAY_CACHE": str(folder / "cache")}

    def __enter__(self) -> Slurm:
        try:
            munge = self.folder / "munge"
            files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "seed", "log")]
            self._start("munged", "--foreground", "--force", f"--socket={munge / 'socket'}", *files)
            until("munged", (munge / "socket").exists, 20)
            self._start("slurmctld", "-D")
            self._start("slurmd", "-D")
            until("the node is idle", lambda: "State=IDLE" in self._try("scontrol", "show", "node"), 60)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._try("scancel", "--user=root")
        if self.daemons[1:]:
            until("all jobs are gone", lambda: not self._try("squeue", "--noheader").strip(), 60)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(60)

    def _start(self, *command: str) -> None:
        with (self.folder / f"{command[0]}.out").open("wb") as out:
            self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=out, stderr=out))

    def _try(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True).stdout

    def run(self, *command: str | Path) -> str:
        """What a command of Slurm prints. RuntimeError if it fails."""
        words = [*map(str, command)]
        done = subprocess.run(words, env=self.environment, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def submit(self, script: str, *words: str | Path, **options: str) -> str:
        """Submit a script of slurm/ with the sizes of this machine; returns the job's number."""
        sizes = {"cpus_per_task": str(CORES), "mem": "4000", "output": f"{self.folder}/%j.out"} | options
        given = [f"--{name.replace('_', '-')}={value}" for name, value in sizes.items()]
        return self.run("sbatch", "--parsable", *given, ROOT / "slurm" / script, *words).strip()

    def shown(self, job: str) -> dict[str, str]:
        """What `scontrol show job` says of a job."""
        fields = self.run("scontrol", "--oneliner", "show", "job", job).split()
        return dict(field.split("=", 1) for field in fields if "=" in field)

    def said(self, job: str) -> str:
        return (self.folder / f"{job}.out").read_text()

    def await_end(self, job: str) -> str:
        """The state in which a job ends."""
        until(f"job {job} ends", lambda: self.shown(job)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"))
        return self.shown(job)["JobState"]


def resumed(slurm: Slurm, file: Path, run: Path) -> None:
    """End a run in each way that a job ends before its time, and wait until it has begun again and gets on."""
    job = slurm.submit("fedray.sbatch", run, file)

    def signalled() -> None:
        slurm.run("scancel", "--batch", "--signal=TERM", job)

    def preempted() -> None:
        urgent = slurm.run("sbatch", "--parsable", "--partition=urgent", f"--cpus-per-task={CORES}", "--mem=4000",
                           "--output=/dev/null", "--wrap=true").strip()  # fmt: skip
        slurm.await_end(urgent)

    def ordered() -> None:
        slurm.run("scontrol", "requeue", job)

    ways = [("SIGTERM", signalled), ("preemption", preempted), ("SIGTERM", signalled), ("scontrol requeue", ordered)]
    for starts, (name, end) in enumerate(ways, start=1):
        done = rounds_of(run)
        until(f"a round after {done}", partial(lambda done: rounds_of(run) > done, done))
        end()
        until("the job begins again", partial(lambda starts: slurm.shown(job)["Restarts"] == str(starts), starts))
        say(f"{name} after round {rounds_of(run)}: the job was requeued")
    assert slurm.await_end(job) == "COMPLETED", slurm.said(job)
    assert rounds_of(run) == ROUNDS


def cancelled(slurm: Slurm, file: Path, run: Path) -> None:
    job = slurm.submit("fedray.sbatch", run, file)
    until("a round", lambda: rounds_of(run) > 0)
    slurm.run("scancel", job)
    assert slurm.await_end(job) == "CANCELLED", slurm.said(job)
    assert slurm.shown(job)["Restarts"] == "0"
    assert slurm.await_end(slurm.submit("fedray.sbatch", run, file)) == "COMPLETED", slurm.said(job)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that the daemons end too
    os.environ["PATH"] += ":/usr/sbin"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.getuid() or missing:
        sys.exit(f"this needs {'root' if os.getuid() else f'{missing[0]}: see the first lines of {__file__}'}")
    with tempfile.TemporaryDirectory(prefix="fedray-slurm-") as name, Slurm(Path(name)) as slurm:
        folder, corpus = Path(name), Path(name, "corpus")
        corpus.mkdir()
        file = folder / "small.yaml"
        file.write_text(yaml.safe_dump(patient_run(corpus, seconds=0.1) | {"rounds": ROUNDS}))
        version = slurm.run("sbatch", "--version").strip()
        done = subprocess.run(
            [sys.executable, "-m", "fedray.cli", "run", file, "--out", folder / "straight"],
            env=slurm.environment, cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        say(f"{version}; the straight run is done")

        resumed(slurm, file, folder / "ended")
        same(folder / "straight", folder / "ended", ROUNDS)
        say("the run that was ended has the bits of the straight run")

        cancelled(slurm, file, folder / "cancelled")
        same(folder / "straight", folder / "cancelled", ROUNDS)
        say("after scancel the job was not requeued; submitted again, it has the bits of the straight run")

        lines = folder / "lines.txt"
        lines.write_text("seed=0\nseed=1\n")
        array = slurm.submit("sweep.sbatch", folder / "sweep", lines, file, array="1-2", cpus_per_task="1", mem="2500")
        until("the array ends", lambda: not slurm.run("squeue", "--noheader", f"--jobs={array}").strip())
        same(folder / "straight", folder / "sweep" / "1", ROUNDS)
        assert rounds_of(folder / "sweep" / "2") == ROUNDS
        say("both jobs of an array ended; the first has the bits of the straight run")


if __name__ == "__main__":
    main()
