"""FedAvg: federated averaging of models trained on true transcripts or labels.

McMahan, Moore, Ramage, Hampson, y Arcas. Communication-Efficient Learning of Deep Networks from Decentralized Data.
AISTATS 2017.

    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            Delta_i <- SGD(theta_t, D_i, E epochs, eta_C^t) - theta_t
        Delta_C <- sum_i n_i / n  Delta_i
        Delta_S <- SGD(theta_t, D_L, one epoch, eta_S) - theta_t   # only with alpha > 0
        Delta   <- alpha Delta_S + (1 - alpha) Delta_C
        theta_{t+1} <- ServerOpt(theta_t, -Delta, eta)

With an adaptive server optimiser (`server_optimizer.kind` adam, yogi, adagrad) this is FedOpt (Reddi et al., ICLR
2021). With `labelled_only`, D_i is the labelled part of a client's data (`data.labelled`), as in the supervised
federation of FedSTAR's paper. For recognition, from a seed model and with alpha > 0, this is SFL, the supervised
federation of FedNST's paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedray.algorithms.base import MixedSettings, MixedSGD, Trained, trained
from fedray.core.types import Client, FederatedData, Received
from fedray.training.labelled import check_labelled, labelled_part


@dataclass(frozen=True)
class FedAvgSettings(MixedSettings):
    """Settings of FedAvg."""

    labelled_only: bool = False  # train only on the utterances that `data.labelled` labels; false: on all


class FedAvg(MixedSGD):
    """Clients keep no state."""

    Settings = FedAvgSettings
    settings: FedAvgSettings

    def check(self, data: FederatedData) -> None:
        super().check(data)
        if self.settings.labelled_only:
            check_labelled(data, "algorithm.labelled_only")

    def client_train(self, client: Client, received: Received) -> Trained:
        data = labelled_part(client.data) if self.settings.labelled_only else client.data
        targets, theta_i = self.task.targets(data), self.local_model(received)
        losses = theta_i.fit(data, targets, self.local_settings(received), client.seed)
        return trained(theta_i, data, losses)
