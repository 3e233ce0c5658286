"""A toy run on its own Ray of one or more nodes: `python -m tests.engine.cluster_run FOLDER '{"nodes": 2, ...}'`.

Tests start it, and some kill it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

from fedray.core import environment
from fedray.core.strategies import STRATEGIES
from fedray.core.types import Client, Layer, Received, Server, ServerState, Update
from fedray.engine.driver import session
from fedray.engine.settings import DeadlineSettings
from fedray.runs.folder import RunFolder
from tests.engine import privately, toys

WIDE = 300  # times the toy's parameters: more than 1 MB
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


class Moody(toys.Toy):
    """A client that finds the file `no-memory` removes it and runs out of memory; the node named in `slow` is slow, and
    that in `older` tells of an old package. While a node `joins`, all clients are slow.
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
        if (folder / "joins").exists():
            time.sleep(1.5)
        return super().client_update(client, received)


class Wide(Moody):
    """Updates so long that their sums stay on the actors."""

    def init(self, server: Server) -> ServerState:
        return ServerState(np.zeros(WIDE * toys.SIZE, np.float32), super().init(server).extra)

    def layers(self) -> tuple[Layer, ...]:
        super().layers()
        return (Layer("all", 0, WIDE * toys.SIZE),)

    def client_update(self, client: Client, received: Received) -> Update:
        update = super().client_update(client, replace(received, params=received.params[: toys.SIZE]))
        return replace(update, delta=np.tile(update.delta, WIDE))

    def server_train(self, server: Server, received: Received) -> Update:
        update = super().server_train(server, replace(received, params=received.params[: toys.SIZE]))
        return replace(update, delta=np.tile(update.delta, WIDE))


def named(file: Path) -> bool:
    """Whether a file names this node."""
    return file.exists() and file.read_text() == ray.get_runtime_context().get_node_id()


@contextmanager
def cluster(nodes: int, lose_after: int, join_after: int, returns: int, folder: Path | str) -> Iterator[None]:
    """A Ray of two cores on one node, or of a core a node. The second node is removed after `lose_after` rounds.

    After `join_after` rounds another node joins. The second node leaves and comes back `returns` times, each time once
    its actor is there. 0: nothing of the kind happens.
    """
    room = {"num_cpus": 1, "include_dashboard": False}
    head = {**room, "num_cpus": 2 if nodes == 1 else 1, "_system_config": QUICK_TO_NOTICE}
    # Hooks for the exit include a signal handler, which the thread that adds a node may not set.
    made = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=not (join_after or returns))
    others = [made.add_node(**room) for _ in range(nodes - 1)]
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    made.wait_for_nodes()

    def lose() -> None:
        while len(RunFolder(folder).rows("metrics.jsonl")) < lose_after:
            time.sleep(0.05)
        time.sleep(0.3)  # well into the next round
        made.remove_node(others[0], allow_graceful=False)

    def join() -> None:
        while len(RunFolder(folder).rows("metrics.jsonl")) < join_after:
            time.sleep(0.05)
        made.add_node(**room)
        while len([*Path(folder).glob("probe/*")]) < 2:  # the driver's, and the node's once its actor is there
            time.sleep(0.05)
        (Path(folder).parent / "joins").unlink()

    def come_and_go() -> None:
        node = others[0]
        for turn in range(returns):
            while len([*Path(folder).glob("probe/*")]) < 3 + turn:  # the driver's, the head's, and one of each return
                time.sleep(0.05)
            made.remove_node(node, allow_graceful=False)
            node = made.add_node(**room)
        (Path(folder).parent / "joins").unlink()

    if join_after or returns:
        (Path(folder).parent / "joins").touch()
    for due, happens in ((lose_after, lose), (join_after, join), (returns, come_and_go)):
        if due:
            threading.Thread(target=happens, daemon=True).start()
    try:
        yield
    finally:
        ray.shutdown()
        made.shutdown()


def main(folder: Path, options: dict[str, Any]) -> None:
    session.ship(toys)
    wanted = (("nodes", 1), ("lose_after", 0), ("join_after", 0), ("returns", 0))
    nodes, *changes = (options.pop(*one) for one in wanted)
    settings = toys.ToySettings(seconds=options.pop("seconds", 0.0), folder=str(folder.parent))
    if deadline := options.pop("deadline", None):
        options["deadline"] = DeadlineSettings(**deadline)
    files = [name for name in ("slow", "older") if options.pop(name, False)]  # that name the second node
    if clients := options.pop("clients", None):
        options |= {"data": toys.ToyData(clients), "cohort": clients - 1}
    strategy = STRATEGIES[options.pop("strategy", "by_examples")]()
    private = privately.private(options.pop("private")) if "private" in options else {}
    place: Any = options.pop("place", folder)
    with cluster(nodes, *changes, place):
        for name in files:
            here = ray.get_runtime_context().get_node_id()
            other = next(node["NodeID"] for node in ray.nodes() if node["NodeID"] != here)
            (folder.parent / name).write_text(other)
        defaults = {"actors": 2, "cpus": 1.0, "algorithm": Wide if options.pop("wide", False) else Moody}
        toys.run(place, settings=settings, **defaults | {"strategy": strategy} | options | private)
        print(json.dumps({"nodes": len(ray.nodes()), "alive": sum(node["Alive"] for node in ray.nodes())}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
