"""Two nodes give the same bits as one, even if one of them is lost during a round; a slow node is named, and files of
the cache are made on the driver's node.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedray.core.strategies import STRATEGIES
from fedray.runs.folder import RunFolder
from tests.engine import toys
from tests.engine.runs import same

pytestmark = pytest.mark.usefixtures("cluster")


def elsewhere(folder: Path, **options: Any) -> dict[str, Any]:
    """Play a run on its own Ray, and return the numbers of nodes, in all and alive, that it prints at the end."""
    return run_elsewhere(folder, **options)[0]


def run_elsewhere(folder: Path, **options: Any) -> tuple[dict[str, Any], str]:
    """Play a run on its own Ray, and return the node counts that it prints at the end, and its messages."""
    command = [sys.executable, "-m", "tests.engine.cluster_run", str(folder), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    said = next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{"))
    return dict(json.loads(said)), done.stderr


@pytest.mark.nightly
def test_two_nodes_give_the_bits_of_one(tmp_path: Path) -> None:
    pruning = STRATEGIES["layerwise_pruning"]()
    toys.play(tmp_path / "one", strategy=pruning, rounds=2)
    said = elsewhere(tmp_path / "two", nodes=2, strategy="layerwise_pruning", rounds=2)
    assert said == {"nodes": 2, "alive": 2}
    assert len(list((tmp_path / "two" / "probe").iterdir())) == 3, (
        "one node did all the work"
    )  # the driver and both nodes
    same(tmp_path / "two", tmp_path / "one", 2)


@pytest.mark.long
def test_a_node_that_is_lost_changes_no_bit(tmp_path: Path) -> None:
    toys.play(tmp_path / "one", rounds=3)
    said = elsewhere(tmp_path / "two", nodes=2, rounds=3, seconds=0.15, lose_after=1)
    assert said == {"nodes": 2, "alive": 1}
    same(tmp_path / "two", tmp_path / "one", 3)
    assert RunFolder(tmp_path / "two").rows("failures.jsonl") == []


@pytest.mark.nightly
def test_sums_that_are_lost_with_a_node_are_made_again(tmp_path: Path) -> None:
    """Ten lanes: sums of subtrees are on both nodes when one of them is lost."""
    options: dict[str, Any] = {"wide": True, "clients": 31, "lanes": 10, "rounds": 3}
    said = elsewhere(tmp_path / "one", **options)
    assert said == {"nodes": 1, "alive": 1}
    said = elsewhere(tmp_path / "two", nodes=2, seconds=0.05, lose_after=1, **options)
    assert said == {"nodes": 2, "alive": 1}
    same(tmp_path / "two", tmp_path / "one", 3)
    assert RunFolder(tmp_path / "two").rows("metrics.jsonl")[-1]["engine/driver_bytes"] == 4 * 300 * toys.SIZE


@pytest.mark.nightly
def test_a_node_that_joins_works_from_the_next_round_on(tmp_path: Path) -> None:
    toys.play(tmp_path / "one", rounds=12)
    said, messages = run_elsewhere(tmp_path / "joined", nodes=1, join_after=1, rounds=12, most=3)
    assert said == {"nodes": 2, "alive": 2}
    assert messages.count("1 more client actor on nodes that have joined") == 1
    assert len(list((tmp_path / "joined" / "probe").iterdir())) == 2, "the driver's file, and the new node's"
    same(tmp_path / "joined", tmp_path / "one", 12)


@pytest.mark.nightly
def test_sixteen_nodes_give_the_bits_of_one(tmp_path: Path) -> None:
    options: dict[str, Any] = {"wide": True, "clients": 65, "lanes": 20, "rounds": 2}
    elsewhere(tmp_path / "one", actors=1, **options)
    said = elsewhere(tmp_path / "many", nodes=16, actors=16, **options)
    assert said == {"nodes": 16, "alive": 16}
    assert len(list((tmp_path / "many" / "probe").iterdir())) == 17, "the driver's file, and one of each node"
    same(tmp_path / "many", tmp_path / "one", 2)


@pytest.mark.nightly
def test_a_node_that_leaves_and_comes_back_ten_times_costs_nothing(tmp_path: Path) -> None:
    toys.play(tmp_path / "one", rounds=40)
    said, messages = run_elsewhere(tmp_path / "two", nodes=2, returns=10, rounds=40, replacements=0)
    assert said == {"nodes": 12, "alive": 2}
    assert messages.count("a node has left with a client actor") == 10
    assert RunFolder(tmp_path / "two").rows("failures.jsonl") == []
    same(tmp_path / "two", tmp_path / "one", 40)


@pytest.mark.nightly
def test_a_slow_node_is_named(tmp_path: Path) -> None:
    said, messages = run_elsewhere(tmp_path / "two", nodes=2, rounds=7, cohort=12, slow=True)
    assert said == {"nodes": 2, "alive": 2}
    other = (tmp_path / "slow").read_text()
    assert messages.count(f"warning: node {other} is slow: the same work takes ") == 1


@pytest.mark.nightly
def test_a_node_with_another_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        AssertionError, match=r"node .* has numpy 1\.0 instead of .*, and the run would not have the same "
    ):
        elsewhere(tmp_path / "two", nodes=2, rounds=1, older=True)


FILES = """
import os, ray
from ray.cluster_utils import Cluster
from fedray.engine.driver import session
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=4, include_dashboard=False)
ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
cluster.wait_for_nodes()
nodes = set(session.parallel(lambda item: ray.get_runtime_context().get_node_id(), range(20), "looking"))
print(len(ray.nodes()), nodes == {ray.get_runtime_context().get_node_id()})
"""


@pytest.mark.nightly
def test_files_of_the_cache_are_made_on_the_machine_whose_cache_it_is() -> None:
    done = subprocess.run([sys.executable, "-c", FILES], capture_output=True, text=True, timeout=120)
    assert done.stdout == "2 True\n", done.stderr[-3000:]
