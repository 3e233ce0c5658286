"""Check a real cluster of three hosts: `ray up`, `ray submit` of a sweep, a host cut off during a round, `ray down`.

    make cluster-check    # as root, with Debian's openssh-server, iproute2 and rsync; about ten minutes on two cores

It shows that cluster-local.yaml starts three hosts (tests/cluster/hosts.py), and that the smoke sweep of fednst_lambda
ends with the same bits as on one host. So does a run whose third host loses its link in a round and gets it back. It
also shows which hosts still run Ray after `ray down`. In the file, only the settings of a site are changed: addresses,
user and key, the shared folder, how fedray is installed, and each node's cores and memory. Not part of `make test`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from tests.cluster.hosts import Host, Network, sh
from tests.engine.runs import bits, rows

ROOT = Path(__file__).parents[2]
HIDDEN = ("/tmp", "/run", "/dev/shm")
SWEEP = "sweeps/fednst_lambda.py"
RUN = "configs/fednst/embedded.yaml"
SIZES = {"server_speakers": 10, "client_speakers": 12, "client_utterances": 20, "dev_speakers": 4}
SIZES |= {"test_speakers": 4, "test_server_speakers": 2}
SMALL = [*(f"data.options.{name}={count}" for name, count in SIZES.items()), "algorithm.pretrain.steps=100"]
LONG = ["rounds=6", "algorithm.client.epochs=6"]  # for the run whose host is cut off
MINUTES = 9


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def cluster_file(network: Network, shared: Path) -> Path:
    """Write cluster-local.yaml adapted to these hosts, and return its path."""
    described = yaml.safe_load((ROOT / "cluster-local.yaml").read_text().replace("/shared/", f"{shared}/"))
    head, *workers = network.hosts
    described["provider"] |= {"head_ip": head.address, "worker_ips": [worker.address for worker in workers]}
    described["auth"] = {"ssh_user": "root", "ssh_private_key": str(network.key)}
    *environment, _, _ = described["setup_commands"]  # without the installation
    own = "echo 'export PYTHONPATH=$HOME/fedray PYTHONWARNINGS=ignore' >> ~/.fedray.sh"
    described["setup_commands"] = [*environment, f"ln -sfn {sys.prefix} ~/venv", own]
    for commands in (described["head_start_ray_commands"], described["worker_start_ray_commands"]):
        commands[-1] += " --num-cpus=1 --object-store-memory=300000000"
    path = network.folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(described, sort_keys=False))
    return path


class Laptop:
    """The machine that commands the cluster: a home folder with a token, and no running Ray."""

    def __init__(self, folder: Path, file: Path) -> None:
        self.file = file
        home = folder / "laptop"
        home.mkdir()
        self.environment = {
            **os.environ,
            "HOME": str(home),
            "RAY_TMPDIR": str(home),
            "RAY_UP_enable_autoscaler_v2": "0",
        }
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "PYTHONPATH"):
            self.environment.pop(name, None)
        self.run("get-auth-token", "--generate")

    def start(self, *command: str, log: Path) -> subprocess.Popen[str]:
        with log.open("w") as out:
            return subprocess.Popen(
                ["ray", *command], cwd=ROOT, env=self.environment, stdout=out, stderr=out, text=True
            )

    def run(self, *command: str) -> str:
        done = subprocess.run(
            ["ray", *command], cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=60 * MINUTES
        )
        if done.returncode:
            raise RuntimeError(f"ray {' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
        return done.stdout

    def nodes(self) -> int:
        count = 'sum(node[\\"Alive\\"] for node in ray.nodes())'
        asked = f'python -c "import ray; ray.init(log_to_driver=False); print(\\"alive\\", {count})"'
        return int(self.run("exec", str(self.file), asked).partition("alive ")[2].split()[0])

    def await_nodes(self, count: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (found := self.nodes()) != count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} nodes after {seconds:.0f} s, not {count}")
            time.sleep(2)


def here(*command: str, cache: Path) -> None:
    """Run a command on this machine alone, with its own Ray and the cache in `cache`."""
    environment = {
        name: value for name, value in os.environ.items() if name != "RAY_ADDRESS" and not name.startswith("FEDRAY_")
    }
    environment |= {"FEDRAY_CACHE": str(cache), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60 * MINUTES
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def same(one: Path, other: Path) -> int:
    """The number of rounds of two runs with the same bits. AssertionError if their bits differ."""
    rounds = len(rows(one))
    assert rounds and rows(one) == rows(other), f"the rows of {one} and {other} differ"
    assert bits(one, rounds) == bits(other, rounds), f"the bits of {one} and {other} differ"
    return rounds


def cut_off(laptop: Laptop, host: Host, run: Path, log: Path) -> None:
    """Play the run, with the host's link down from the middle of round 2 until two more rounds are done."""

    def played() -> int:
        return len(rows(run)) if (run / "metrics.jsonl").exists() else 0

    def until(count: int) -> float:
        since = time.monotonic()
        while played() < count:
            if playing.poll() is not None or time.monotonic() - since > 60 * MINUTES:
                raise RuntimeError(f"the run ended, or stands, after {played()} rounds:\n{log.read_text()[-4000:]}")
            time.sleep(0.1)
        return time.monotonic() - since

    playing = laptop.start(
        "exec", str(laptop.file), f"fedray run ~/fedray/{RUN} {' '.join([*SMALL, *LONG])} --out {run}", log=log
    )
    until(1)
    time.sleep(1.5)
    host.cut()
    say(f"cut: {host.name} has lost its link in round {played() + 1}")
    before = played()
    say(f"cut: round {before + 1} was done {until(before + 1):.0f} s later")
    until(before + 2)
    host.mend()
    say(f"cut: {host.name} has its link again after round {played()}")
    if playing.wait(60 * MINUTES):
        raise RuntimeError(log.read_text()[-4000:])


def refuse_hidden() -> None:
    """Exit if a host could not see this clone or its Python: tests/cluster/hosts.py hides some folders."""
    for path in (ROOT, Path(sys.prefix)):
        for hidden in HIDDEN:
            if path.is_relative_to(hidden):
                sys.exit(f"{path} lies below {hidden}, and each host has its own: clone fedray elsewhere, such as /srv")


def main() -> None:
    refuse_hidden()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that the hosts end too
    with Network(("fedray-head", "fedray-one", "fedray-two")) as network:
        shared, alone = network.folder / "shared", network.folder / "alone"
        shared.mkdir()
        here(SWEEP, "--smoke", *SMALL, "--out", str(alone / "fednst_lambda"), cache=alone / "cache")
        here("-m", "fedray.cli", "run", RUN, *SMALL, *LONG, "--out", str(alone / "cut"), cache=alone / "cache")
        say("one host: the sweep and the run are done")
        laptop = Laptop(network.folder, file := cluster_file(network, shared))
        say(f"hosts: {', '.join(f'{host.name} {host.address}' for host in network.hosts)}")
        since = time.monotonic()
        laptop.run("up", "--yes", "--no-config-cache", str(file))
        laptop.await_nodes(len(network.hosts), 120)
        say(f"ray up: {len(network.hosts)} nodes after {time.monotonic() - since:.0f} s")

        since = time.monotonic()
        laptop.run("submit", str(file), SWEEP, "--smoke", "--max-concurrent", "1", *SMALL)
        say(f"ray submit {SWEEP} --smoke: done after {time.monotonic() - since:.0f} s")
        experiment = shared / "runs" / "fednst_lambda"
        for trial in sorted(experiment.glob("*/run")):
            on = len([path for path in (trial / "probe").iterdir() if path.name != "driver"])
            rounds = same(trial, alone / trial.relative_to(experiment.parent))
            say(f"  {trial.parent.name}: {rounds} rounds on {on} hosts, the bits of one host")

        cut_off(laptop, network.hosts[2], shared / "runs" / "cut", network.folder / "cut.log")
        say(
            f"cut: {same(shared / 'runs' / 'cut', alone / 'cut')} rounds, the bits of one host that nothing happened to"
        )
        laptop.await_nodes(len(network.hosts), 240)
        say(f"{len(network.hosts)} nodes again: Ray was started anew on {network.hosts[2].name}")

        laptop.run("down", "--yes", str(file))
        left = [host.name for host in network.hosts if host.processes("raylet")]
        say(f"ray down: raylets run on {', '.join(left) or 'no host'}")
    assert not any(name in sh("ip", "netns") for name in network.names)
    say("all gone")


if __name__ == "__main__":
    main()
