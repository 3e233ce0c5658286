"""A toy run on its own Ray of one or two nodes: `python -m tests.engine.cluster_run FOLDER '{"nodes": 2, ...}'`.

Tests start it, and some kill it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from fedray.core import environment
from fedray.core.strategies import STRATEGIES
from fedray.core.types import Client, Layer, Received, Update
from fedray.engine.driver import session
from fedray.engine.settings import DeadlineSettings
from fedray.runs.folder import RunFolder
from tests.engine import privately, toys

QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


class Moody(toys.Toy):
    """A client that finds the file `no-memory` removes it and runs out of memory; the node named in `slow` is slow, and
    that in `older` tells of an old package.
    """

    def layers(self) -> tuple[Layer, ...]:
        if named(Path(self.settings.folder) / "older"):  # in the actor's process, before it answers
            known = environment.versions(environment.LEARNING)
            environment.versions = lambda names: known | {"numpy": "1.0"}
        return super().layers()

    def client_update(self, client: Client, received: Received) -> Update:
        folder = Path(self.settings.folder)
        if (folder / "no-memory").exists():
            (folder / "no-memory").unlink(missing_ok=True)
            raise MemoryError
        if named(folder / "slow"):
            time.sleep(0.5)
        return super().client_update(client, received)


def named(file: Path) -> bool:
    """Whether a file names this node."""
    return file.exists() and file.read_text() == ray.get_runtime_context().get_node_id()


@contextmanager
def cluster(nodes: int, lose_after: int, folder: Path | str) -> Iterator[None]:
    """A Ray of two cores, on one node or two. The second node is removed after `lose_after` rounds (0: it stays)."""
    room = {"num_cpus": 1, "include_dashboard": False}
    head = {**room, "num_cpus": 2 if nodes == 1 else 1, "_system_config": QUICK_TO_NOTICE}
    made = Cluster(initialize_head=True, head_node_args=head)
    others = [made.add_node(**room) for _ in range(nodes - 1)]
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    made.wait_for_nodes()

    def lose() -> None:
        while len(RunFolder(folder).rows("metrics.jsonl")) < lose_after:
            time.sleep(0.05)
        time.sleep(0.3)  # well into the next round
        made.remove_node(others[0], allow_graceful=False)

    if lose_after:
        threading.Thread(target=lose, daemon=True).start()
    try:
        yield
    finally:
        ray.shutdown()
        made.shutdown()


def main(folder: Path, options: dict[str, Any]) -> None:
    session.ship(toys)
    nodes, lose_after = options.pop("nodes", 1), options.pop("lose_after", 0)
    settings = toys.ToySettings(seconds=options.pop("seconds", 0.0), folder=str(folder.parent))
    if deadline := options.pop("deadline", None):
        options["deadline"] = DeadlineSettings(**deadline)
    files = [name for name in ("slow", "older") if options.pop(name, False)]  # that name the second node
    if clients := options.pop("clients", None):
        options |= {"data": toys.ToyData(clients), "cohort": clients - 1}
    strategy = STRATEGIES[options.pop("strategy", "by_examples")]()
    private = privately.private(options.pop("private")) if "private" in options else {}
    place: Any = options.pop("place", folder)
    with cluster(nodes, lose_after, place):
        for name in files:
            here = ray.get_runtime_context().get_node_id()
            other = next(node["NodeID"] for node in ray.nodes() if node["NodeID"] != here)
            (folder.parent / name).write_text(other)
        defaults = {"actors": 2, "cpus": 1.0, "algorithm": Moody}
        toys.run(place, settings=settings, **defaults | {"strategy": strategy} | options | private)
        print(json.dumps({"nodes": len(ray.nodes()), "alive": sum(node["Alive"] for node in ray.nodes())}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
