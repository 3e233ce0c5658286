"""The tensors of a configuration's model: how large each is, whether it is trained, and when it travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from fedray.core.algorithm import Algorithm
from fedray.core.seeds import derive
from fedray.core.types import Broadcast, Server
from fedray.data.federation.speech_data import SpeechData
from fedray.experiment.builders import build_algorithm
from fedray.experiment.config import Config
from fedray.training.personal import matches
from fedray.training.task import Task


@dataclass(frozen=True)
class TensorRow:
    """A parameter or a running statistic of the model, as the algorithm sees it."""

    name: str
    shape: tuple[int, ...]
    kind: str  # trained | statistics | frozen
    travels: str  # every round | once | stays with the client
    aliases: tuple[str, ...] = ()  # of patterns that match the name

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns that match it: its outermost module, such as out.* for out.weight, and its aliases."""
        first, _, rest = self.name.partition(".")
        return f"{first}.*" if rest else first, *self.aliases


def first_broadcast(config: Config, data: SpeechData) -> tuple[Algorithm, Broadcast]:
    """The algorithm, and its broadcast of round 0 from a seed model that is not trained."""
    pretrain = getattr(config.algorithm.settings, "pretrain", None)
    if pretrain is not None:
        settings = replace(config.algorithm.settings, pretrain=replace(pretrain, steps=0))
        config = replace(config, algorithm=replace(config.algorithm, settings=settings))
    algorithm = build_algorithm(config, data)
    state = algorithm.init(Server(None, None, derive(config.seed, "server", "init")))
    return algorithm, algorithm.broadcast(algorithm.begin(state, derive(config.seed, "server", "begin")), 0)


def tensor_rows(task: Task, broadcast: Broadcast) -> list[TensorRow]:
    """The tensors in the order of the vector. `broadcast`: what the server sends."""
    layout, aliases, moving = task.layout, task.aliases(), broadcast.params.size - broadcast.constant
    personal, starts = layout.personal, {entry.name: entry.start for entry in layout.training.entries}
    ends = {"trained": layout.training.trainable, "statistics": layout.training.moving, "frozen": layout.size}
    rows = []
    for entry in layout.entries:
        kind = next(kind for kind, end in ends.items() if starts[entry.name] < end)
        travels = "every round" if entry.start < moving else "once"
        travels = "stays with the client" if personal.start <= entry.start < personal.stop else travels
        known = tuple(alias for alias, patterns in aliases.items() if matches(entry.name, patterns))
        rows.append(TensorRow(entry.name, entry.shape, kind, travels, known))
    return rows


def by_pattern(rows: Sequence[TensorRow]) -> Mapping[str, list[TensorRow]]:
    """The tensors by the patterns of their modules, and by aliases."""
    names = dict.fromkeys([row.patterns[0] for row in rows] + [alias for row in rows for alias in row.aliases])
    return {name: [row for row in rows if name in row.patterns] for name in names}
