"""A workload in pfl-research: `torchrun --nproc_per_node=CORES -m benchmarks.engine.peer_pfl WORKLOAD ROUNDS`.

Runs in the peers' environment, with one process a core. The cohort is divided among the processes by the clients'
steps, as pfl's guide to fast simulations advises. The first process prints seconds and examples of each round as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
from pfl.aggregate.base import get_num_datapoints_weight_name
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Population
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.engine import workloads
from benchmarks.engine.floor import workload_of
from benchmarks.engine.workloads import Workload


class Module(nn.Module):
    """A network with the two methods that pfl asks for. It stays in training mode: nothing is evaluated."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.workload, self.net = workload, workload.net()

    def loss(self, *batch: Tensor) -> Tensor:
        return self.workload.loss(self.net, *batch)

    def metrics(self, *batch: Tensor) -> dict[str, float]:
        return {}


class Clock(TrainingProcessCallback):
    def __init__(self) -> None:
        self.ends: list[float] = []
        self.examples: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.ends.append(time.perf_counter())
        self.examples.append(aggregate_metrics[get_num_datapoints_weight_name(Population.TRAIN)].weighted_value)
        return False, Metrics()


def play(workload: Workload, rounds: int) -> Clock:
    torch.set_num_threads(1)
    np.random.seed(0)  # the same in all processes, which sample the same cohort
    module = Module(workload)
    users = range(workload.clients)
    data = FederatedDataset(
        lambda user: Dataset(workload.data(user), user_id=str(user)),
        get_user_sampler("minimize_reuse", list(users)),
        {user: workloads.steps(workload, user) for user in users},
    )
    clock = Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=workload.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, [WeightByDatapoints()]),
        PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_learning_rate=workload.lr,
            local_num_epochs=workload.epochs,
            local_batch_size=workload.batch,
            local_max_grad_norm=workload.clip,
        ),
        NNEvalHyperParams(local_batch_size=workload.batch),
        callbacks=[clock],
    )
    return clock


def main(arguments: list[str]) -> None:
    clock = play(workload_of(arguments[0]), int(arguments[1]))
    if pytorch_ops.distributed is None or pytorch_ops.distributed.global_rank == 0:
        print(json.dumps({"seconds": np.diff(clock.ends).tolist(), "examples": clock.examples}))


if __name__ == "__main__":
    main(sys.argv[1:])
