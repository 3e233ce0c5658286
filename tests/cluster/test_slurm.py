"""The scripts in slurm/: a run that SIGTERM ends is requeued and resumed, and has the bits of a straight run."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import yaml

from tests.cli.terminal import SECONDS, until
from tests.cluster.slurm import JOB, ROOT, Slurm, rounds_of
from tests.engine.runs import same
from tests.small_corpus import patient_run

# A `fedray` that writes down what it is asked, makes its run folder, and then ends with the status in `ends`, or waits.
PRETENDED = """
echo "$*" >> "$FAKE/calls"
trap 'exit 143' TERM
[ "$1" = resume ] || { mkdir -p "${@: -1}"; touch "${@: -1}/config.yaml"; }
touch "$FAKE/started"
while [ ! -e "$FAKE/ends" ]; do sleep 0.05; done
exit "$(cat "$FAKE/ends")"
"""
Opening = Callable[..., Slurm]


@pytest.fixture
def opening(tmp_path: Path) -> Iterator[Opening]:
    opened: list[Slurm] = []

    def make(**options: Any) -> Slurm:
        opened.append(Slurm(tmp_path, **options))
        return opened[-1]

    yield make
    for slurm in opened:
        slurm.close()


def started(slurm: Slurm) -> None:
    until((slurm.fakes / "started").exists, "fedray has not started")
    (slurm.fakes / "started").unlink()


def test_sigterm_ends_a_run_that_is_requeued_and_resumed(opening: Opening, tmp_path: Path) -> None:
    slurm, run = opening(fedray=PRETENDED), tmp_path / "run"
    words = (run, "fednst/embedded", "rounds=50")
    for _ in range(2):
        job = slurm.start(*words)
        started(slurm)
        slurm.terminate()
        assert job.wait(SECONDS) == 143 and slurm.requeued() == [f"requeue {JOB}"], slurm.said()
    (slurm.fakes / "ends").write_text("0")
    assert slurm.start(*words).wait(SECONDS) == 0 and not slurm.requeued()
    calls = (slurm.fakes / "calls").read_text().splitlines()
    assert calls == [f"run fednst/embedded rounds=50 --out {run}", f"resume {run}", f"resume {run}"]


def test_a_job_that_is_cancelled_or_fails_is_not_requeued(opening: Opening, tmp_path: Path) -> None:
    slurm = opening(fedray=PRETENDED)
    slurm.set_state("COMPLETING")  # as after `scancel`, which sends SIGTERM too
    job = slurm.start(tmp_path / "run", "fednst/embedded")
    started(slurm)
    slurm.terminate()
    assert job.wait(SECONDS) == 143 and not slurm.requeued()
    slurm.set_state("RUNNING")
    (slurm.fakes / "ends").write_text("1")
    assert slurm.start(tmp_path / "run", "fednst/embedded").wait(SECONDS) == 1 and not slurm.requeued()


def test_each_job_of_an_array_takes_its_line(opening: Opening, tmp_path: Path) -> None:
    slurm, lines = opening(fedray=PRETENDED), tmp_path / "lines"
    lines.write_text("seed=1 rounds=2\nseed=2\n")
    (slurm.fakes / "ends").write_text("0")

    def array(number: int) -> int:
        words = (tmp_path / "study", lines, "gao/embedded", "cohort.size=5")
        return slurm.start(*words, script="sweep.sbatch", SLURM_ARRAY_TASK_ID=str(number)).wait(SECONDS)

    assert [array(number) for number in (2, 1, 3)] == [0, 0, 2]
    calls = (slurm.fakes / "calls").read_text().splitlines()
    assert calls == [
        f"run gao/embedded cohort.size=5 seed=2 --out {tmp_path}/study/2",
        f"run gao/embedded cohort.size=5 seed=1 rounds=2 --out {tmp_path}/study/1",
    ]
    assert f"{lines} has no line 3" in slurm.said()


def test_both_scripts_ask_slurm_for_the_same() -> None:
    def asked(script: str) -> set[str]:
        text = (ROOT / "slurm" / script).read_text()
        return set(re.findall(r"^#SBATCH (--\S+)", text, re.MULTILINE)) - {"--job-name=fedray", "--output=%x-%j.out"}

    assert asked("fedray.sbatch") == asked("sweep.sbatch") - {"--job-name=fedray-sweep", "--output=%x-%A-%a.out"}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run whose clients take a tenth of a second."""
    return patient_run(tmp_path_factory.mktemp("noise"), seconds=0.1)


def await_moment(run: Path, job: subprocess.Popen[str], chance: random.Random) -> None:
    """Wait until a random moment of a job: early in it, or soon after a new round."""
    late, share, before = chance.random() < 0.75, chance.random(), rounds_of(run)
    deadline = time.monotonic() + (SECONDS if late else 0)
    while rounds_of(run) <= before and time.monotonic() < deadline and job.poll() is None:
        time.sleep(0.02)
    time.sleep(share * (0.5 if late else 8))


def status_of(slurm: Slurm, *words: Path, moment: Callable[[subprocess.Popen[str]], None] | None = None) -> int:
    """The status of a job, which gets SIGTERM at a moment. On a busy machine Ray may not start: then once more."""
    while True:
        job = slurm.start(*words)
        if moment is not None:
            moment(job)
            slurm.terminate()
        status = job.wait(6 * SECONDS)
        if not slurm.said().endswith("repeat the command\n"):
            return status


@pytest.mark.nightly
@pytest.mark.parametrize(("kills", "rounds", "processes"), [(4, 20, False), (20, 100, False), (3, 20, True)])
def test_a_run_that_is_killed_and_requeued_has_the_bits_of_a_straight_run(
    kills: int, rounds: int, processes: bool, opening: Opening, config: dict[str, Any], cluster: None, tmp_path: Path
) -> None:
    """`processes`: each job starts Ray and its actors; else it joins the test's Ray, and has none."""
    slurm = opening(**{} if processes else {"fedray": f'exec {sys.executable} -m tests.cluster.without_processes "$@"'})
    slurm.environment["FAKE_RAY"] = ray.get_runtime_context().gcs_address
    chance, run, file = random.Random(kills), tmp_path / "run", tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(config | {"rounds": rounds}))
    assert status_of(slurm, tmp_path / "straight", file) == 0, slurm.said()
    killed = []
    for _ in range(kills):
        status = status_of(slurm, run, file, moment=lambda job: await_moment(run, job, chance))
        assert status == 143 and slurm.requeued() == [f"requeue {JOB}"], slurm.said()
        killed.append(rounds_of(run))
    assert killed[-1] < rounds, f"it was killed after {killed} rounds: the last kills came too late"
    assert status_of(slurm, run, file) == 0, slurm.said()
    same(tmp_path / "straight", run, rounds)
    print(f"killed after {killed} rounds")
    assert len(set(killed)) > kills / 3, f"it was killed after {killed} rounds: too few of the kills were in rounds"


@pytest.mark.nightly
def test_ray_runs_on_all_nodes_of_a_job_and_ends_with_it(
    opening: Opening, config: dict[str, Any], cache: Path, tmp_path: Path
) -> None:
    """The other node of the job is this machine once more."""
    slurm = opening(nodes=2)
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(config | {"rounds": 2, "engine": {"lanes": 2}}))
    before = set(psutil.pids())
    job = slurm.start(tmp_path / "run", file)
    assert job.wait(4 * SECONDS) == 0, slurm.said()
    assert (slurm.fakes / "srun").read_text().split() == [
        "--nodes=1",
        "--ntasks=1",
        "--relative=1",
        "--cpus-per-task=1",
    ]
    assert "starting 2 client actors" in slurm.said(), "each node has one core for the job"
    of_job = [process for process in psutil.process_iter() if process.pid not in before and asks_for(process)]
    psutil.wait_procs(of_job, timeout=10)
    assert not [process for process in of_job if process.is_running()]
    assert not Path(f"/tmp/fr-{JOB}").exists() and not Path(f"/tmp/fr-{JOB}b").exists()
    assert json.loads((tmp_path / "run" / "results.json").read_text())["rounds"] == 2


def asks_for(process: psutil.Process) -> bool:
    """Whether a process belongs to the job's Ray."""
    try:
        return any(f"/tmp/fr-{JOB}" in word for word in process.cmdline())
    except psutil.Error:
        return False
