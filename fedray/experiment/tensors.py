"""The tensors of a configuration's model: how large each is, whether it is trained, and when it travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from fedray.core.algorithm import Algorithm
from fedray.core.parameters import Layout
from fedray.core.seeds import derive
from fedray.core.types import Broadcast, Server
from fedray.data.federation.speech_data import SpeechData
from fedray.experiment.builders import build_algorithm
from fedray.experiment.config import Config


@dataclass(frozen=True)
class TensorRow:
    """A parameter or a running statistic of the model, as the algorithm sees it."""

    name: str
    shape: tuple[int, ...]
    kind: str  # trained | statistics | frozen
    travels: str  # every round | once | stays with the client

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    @property
    def module(self) -> str:
        """A pattern for all tensors of its outermost module, such as out.* for out.weight."""
        first, _, rest = self.name.partition(".")
        return f"{first}.*" if rest else first


def first_broadcast(config: Config, data: SpeechData) -> tuple[Algorithm, Broadcast]:
    """The algorithm, and its broadcast of round 0 from a seed model that is not trained."""
    pretrain = getattr(config.algorithm.settings, "pretrain", None)
    if pretrain is not None:
        settings = replace(config.algorithm.settings, pretrain=replace(pretrain, steps=0))
        config = replace(config, algorithm=replace(config.algorithm, settings=settings))
    algorithm = build_algorithm(config, data)
    state = algorithm.init(Server(None, None, derive(config.seed, "server", "init")))
    return algorithm, algorithm.broadcast(algorithm.begin(state, derive(config.seed, "server", "begin")), 0)


def tensor_rows(layout: Layout, broadcast: Broadcast) -> list[TensorRow]:
    """The tensors in the order of the vector. `broadcast`: what the server sends."""
    moving, own = broadcast.params.size - broadcast.constant, layout.personal
    kinds = {entry.name: entry for entry in layout.training.entries}
    ends = {"trained": layout.training.trainable, "statistics": layout.training.moving, "frozen": layout.size}
    rows = []
    for entry in layout.entries:
        kind = next(kind for kind, end in ends.items() if kinds[entry.name].start < end)
        stays = "stays with the client" if own.start <= entry.start < own.stop else "once"
        rows.append(TensorRow(entry.name, entry.shape, kind, "every round" if entry.start < moving else stays))
    return rows


def modules(rows: Sequence[TensorRow]) -> Mapping[str, list[TensorRow]]:
    """The tensors by the pattern of their outermost module."""
    found: dict[str, list[TensorRow]] = {}
    for row in rows:
        found.setdefault(row.module, []).append(row)
    return found
