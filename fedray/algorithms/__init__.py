"""Algorithms by the name that `algorithm.kind` calls them."""

from __future__ import annotations

from fedray.algorithms.central import NST, SL
from fedray.algorithms.fedavg import FedAvg
from fedray.algorithms.fednst import FedNST
from fedray.core.algorithm import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {"fedavg": FedAvg, "fednst": FedNST, "nst": NST, "sl": SL}
