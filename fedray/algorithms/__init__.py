"""The algorithms, by their names in `algorithm.kind`."""

from __future__ import annotations

from fedray.algorithms.central import NST, SL
from fedray.algorithms.ditto import Ditto
from fedray.algorithms.fedavg import FedAvg
from fedray.algorithms.fedbabu import FedBABU
from fedray.algorithms.fedbn import FedBN
from fedray.algorithms.feddyn import FedDyn
from fedray.algorithms.fedlora import FedLoRA
from fedray.algorithms.fedmem import FedMem
from fedray.algorithms.fedmlac import FedMLAC
from fedray.algorithms.fednst import FedNST
from fedray.algorithms.fedntd import FedNTD
from fedray.algorithms.fedper import FedPer
from fedray.algorithms.fedprox import FedProx
from fedray.algorithms.fedrep import FedRep
from fedray.algorithms.fedstar import FedSTAR
from fedray.algorithms.gao import Gao
from fedray.algorithms.moon import MOON
from fedray.algorithms.reverb import Reverb
from fedray.algorithms.scaffold import Scaffold
from fedray.core.algorithm import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {
    "ditto": Ditto,
    "fedavg": FedAvg,
    "fedbabu": FedBABU,
    "fedbn": FedBN,
    "feddyn": FedDyn,
    "fedlora": FedLoRA,
    "fedmem": FedMem,
    "fedmlac": FedMLAC,
    "fednst": FedNST,
    "fedntd": FedNTD,
    "fedper": FedPer,
    "fedprox": FedProx,
    "fedrep": FedRep,
    "fedstar": FedSTAR,
    "gao": Gao,
    "moon": MOON,
    "nst": NST,
    "reverb": Reverb,
    "scaffold": Scaffold,
    "sl": SL,
}
