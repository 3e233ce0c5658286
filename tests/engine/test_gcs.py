"""If Ray's head process is killed (SIGKILL), the run ends with a message and can be resumed on another Ray.

`python -m tests.engine.test_gcs FOLDER` plays the run, on its own Ray.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import ray

from fedray.core.types import RunError
from fedray.engine.driver import session
from fedray.runs.folder import RunFolder
from tests.engine import toys
from tests.engine.runs import same

ROUNDS = 400  # more than a run can play before Ray gives up


@pytest.mark.nightly
def test_without_ray_s_head_a_run_ends_in_words_and_goes_on_to_the_same_bits(cluster: None, tmp_path: Path) -> None:
    root, folder = Path(__file__).parents[2], RunFolder(tmp_path / "run")
    command = [sys.executable, "-m", "tests.engine.test_gcs", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE, text=True)
    family: list[psutil.Process] = []
    try:
        while len(folder.rows("metrics.jsonl")) < 2:
            assert run.poll() is None, "the run ended"
            time.sleep(0.2)
        family = psutil.Process(run.pid).children(recursive=True)
        (head,) = [process for process in family if process.name() == "gcs_server"]
        head.kill()
        _, said = run.communicate(timeout=150)
    finally:
        for process in (run, *family):
            with suppress(psutil.NoSuchProcess):
                process.kill()
    assert run.returncode == 1 and "Traceback" not in said, said
    assert "Ray's head process (GCS) at " in said and f"`fedray resume {tmp_path}/run` continues from its" in said
    played = folder.saved_rounds()[-1]
    assert 2 <= played < ROUNDS
    toys.play(tmp_path / "run", rounds=played + 1)
    toys.play(tmp_path / "straight", rounds=played + 1)
    same(tmp_path / "run", tmp_path / "straight", played + 1)


def main(folder: Path) -> int:
    session.ship(toys)
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        toys.run(folder / "run", rounds=ROUNDS, actors=2, settings=toys.ToySettings(seconds=0.3))
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
