"""The algorithms, by their names in `algorithm.kind`."""

from __future__ import annotations

from fedray.algorithms.central import NST, SL
from fedray.algorithms.ditto import Ditto
from fedray.algorithms.fedavg import FedAvg
from fedray.algorithms.fedlora import FedLoRA
from fedray.algorithms.fedmem import FedMem
from fedray.algorithms.fedmlac import FedMLAC
from fedray.algorithms.fednst import FedNST
from fedray.algorithms.fedprox import FedProx
from fedray.algorithms.fedstar import FedSTAR
from fedray.algorithms.gao import Gao
from fedray.algorithms.scaffold import Scaffold
from fedray.core.algorithm import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {
    "ditto": Ditto,
    "fedavg": FedAvg,
    "fedlora": FedLoRA,
    "fedmem": FedMem,
    "fedmlac": FedMLAC,
    "fednst": FedNST,
    "fedprox": FedProx,
    "fedstar": FedSTAR,
    "gao": Gao,
    "nst": NST,
    "scaffold": Scaffold,
    "sl": SL,
}
