"""A workload in Flower's simulation: `python -m benchmarks.engine.peer_flower WORKLOAD ROUNDS CORES`.

Runs in the peers' environment, with a node for every client and as many clients side by side as there are cores. A
process keeps the network from client to client. Prints seconds and examples of each round as JSON.
"""

from __future__ import annotations

import functools
import json
import sys
import time

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from benchmarks.engine import workloads
from benchmarks.engine.floor import workload_of
from benchmarks.engine.workloads import Workload

client_app = ClientApp()


@functools.cache
def prepared(text: str) -> tuple[Workload, nn.Module]:
    """The workload and its network, once a process."""
    torch.set_num_threads(1)
    workload = workload_of(text)
    return workload, workload.net()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    workload, model = prepared(message.content["config"]["workload"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    data = workload.data(int(context.node_config["partition-id"]))
    loss = workloads.train(workload, model, data)
    reply = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"loss": loss, "num-examples": len(data[0])}),
    }
    return Message(content=RecordDict(reply), reply_to=message)


def counted(replies: list[RecordDict], weight: str) -> MetricRecord:
    return MetricRecord({"examples": sum(reply["metrics"][weight] for reply in replies)})


def play(text: str, rounds: int, cores: int) -> dict[str, list[float]]:
    workload, model = prepared(text)
    ends: list[float] = []
    examples: list[float] = []

    def clock(round: int, arrays: ArrayRecord) -> MetricRecord:
        """Flower calls it before the first round and after each round."""
        ends.append(time.perf_counter())
        return MetricRecord({"round": round})

    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=workload.cohort / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=workload.cohort,
            min_available_nodes=workload.clients,
            train_metrics_aggr_fn=counted,
        )
        result = strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=rounds,
            train_config=ConfigRecord({"workload": text}),
            evaluate_fn=clock,
        )
        examples.extend(record["examples"] for record in result.train_metrics_clientapp.values())

    resources = {"init_args": {"num_cpus": cores}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, workload.clients, backend_config=resources)
    return {"seconds": np.diff(ends)[1:].tolist(), "examples": examples}


def main(arguments: list[str]) -> None:
    print(json.dumps(play(arguments[0], int(arguments[1]), int(arguments[2]))))


if __name__ == "__main__":
    # Actors import this module by its name, and so keep their networks; `__main__` they would receive by value.
    from benchmarks.engine import peer_flower

    peer_flower.main(sys.argv[1:])
