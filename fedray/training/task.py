"""The interface of a task: a model, its targets, its loss and its scores."""

from __future__ import annotations

import copy
import gc
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedray.core.parameters import FlatModel, Layout
from fedray.core.settings import Choice, kind_of
from fedray.core.types import Evaluation, Vector
from fedray.data.features.dataset import Batch, Utterances, collate
from fedray.data.features.kinds import FEATURES
from fedray.data.features.log_mel import FLOOR, LogMelSettings, fft_size
from fedray.data.features.settings import FeatureSettings
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import Mask, Rows
from fedray.models import MODELS, kernels
from fedray.models.adapters import LoRASettings, adapt
from fedray.models.export_recogniser import FeatureDescription
from fedray.models.heads import last_layers
from fedray.models.norms import norm_layers, running_statistics
from fedray.models.weights import check_constants, constants, load_weights
from fedray.training.large import LARGE
from fedray.training.loans import Loans
from fedray.training.personal import check_patterns, matches

SHOWN = 4  # utterances of a shard whose rows a score of dev has between rounds
Targets = Sequence[Sequence[int]] | npt.NDArray[np.int64]  # token ids of each utterance, or its class number


def targets_at(targets: Targets, positions: Rows) -> Targets:
    """The targets of the utterances at these positions."""
    return targets[positions] if isinstance(targets, np.ndarray) else [targets[position] for position in positions]


@runtime_checkable
class Pretrained(Protocol):
    """A model that can load the weights of its checkpoint."""

    def load_pretrained(self) -> None:
        """Replace the initial weights with those of the checkpoint."""


def described(settings: LogMelSettings) -> FeatureDescription:
    """How a model exported from a run with these settings computes its features."""
    return FeatureDescription(
        sample_rate=settings.sample_rate,
        fft=fft_size(settings),
        window=settings.window,
        hop=settings.hop,
        bins=settings.bins,
        floor=FLOOR,
        normalise=settings.normalise,
    )


class Task(ABC):
    """A model, its targets, its loss and its scores.

    A run builds the task once, from the configuration and the federation, and copies it to every actor. Each copy
    builds its model when it first needs it. A subclass sets `outputs` before it builds a model.
    """

    Settings: ClassVar[type]  # a frozen dataclass: the section `task` of a configuration, without its kind
    init_depends: ClassVar[tuple[str, ...]]  # the configuration keys that weights trained on this task depend on
    logged: ClassVar[tuple[str, ...]] = ("loss",)  # the metrics of training that each row of metrics.jsonl has
    best: ClassVar[tuple[str, str]]  # the metric that picks the best round; "min" or "max"
    evaluation_batch: ClassVar[int] = 32  # utterances that are scored together, see `scored_together`
    outputs: int  # of the model: tokens or classes
    kernels = True  # whether compiled loops may be used where they fit

    def __init__(self, settings: Any, model: Choice, features: FeatureSettings, data: SpeechData) -> None:
        """`settings`: the task's. `data`: the federation, from which a subclass learns its tokens or classes."""
        self.check_setup(settings, model, features)
        self.settings, self.features, self.model_settings = settings, features, model.settings
        # The class, not its name: actors receive a user's model class by value, and their registry lacks its name.
        self.model_class = self.network(model.kind)
        self.adapters: LoRASettings | None = None
        self.personal: tuple[str, ...] = ()  # patterns of the names of what stays with a client
        self._plain: Self | None = None  # the same task with nothing personal; None: this one
        self._flats: dict[tuple[str, int], FlatModel] = {}  # by device and number
        self._loans = Loans()  # of their numbers, by device
        self._layout: Layout | None = None

    @classmethod
    def check_setup(cls, settings: Any, model: Choice, features: FeatureSettings) -> None:
        """Raise ValueError when task, model and features do not fit together; called before any data are read.

        `settings`: the task's.
        """
        given, wanted = kind_of(features, FEATURES), getattr(MODELS[model.kind], "features_kind", None)
        if callable(wanted):
            wanted = wanted(model.settings)
        elif wanted is None and features.of_checkpoints:
            wanted = "logmel"
        if wanted is not None and given != wanted:
            raise ValueError(f"model.kind {model.kind} needs features.kind={wanted}, not {given}")

    @classmethod
    def network(cls, kind: str) -> type[nn.Module]:
        """The class that a `model.kind` stands for in this task."""
        return MODELS[kind]

    @classmethod
    def column(cls, settings: Any) -> str:
        """The column of the manifest that holds the targets. `settings`: the task's."""
        return "text"

    @property
    def signatures(self) -> Mapping[str, str]:
        """Score -> how it is computed, for scores that papers report with a signature; results.json holds them."""
        return {}

    @property
    def scored_together(self) -> int:
        """How many utterances are scored together: the model's own number, or the task's. Bits depend on it."""
        return getattr(self.model_class, "evaluation_batch", self.evaluation_batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_flats": {}, "_loans": Loans()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        kernels.switch(self.kernels)  # an actor, which gets the task of one run

    def model(self) -> nn.Module:
        """Build a model with random weights from torch's global generator."""
        return self.model_class(self.model_settings, self.features.bins, self.outputs)

    def with_model(self, settings: Any) -> Self:
        """The same task with other model settings, for the same model class, and nothing personal."""
        other = self.plain._copy()
        other.model_settings = settings
        return other

    def with_adapters(self, settings: LoRASettings) -> Self:
        """The same task with adapters on a frozen model, and nothing personal.

        Its vector of parameters holds the adapters first, then the model's parameters.
        """
        other = self.plain._copy()
        other.adapters = settings
        return other

    def with_personal(self, patterns: Sequence[str]) -> Self:
        """The same task with a personal part: parameters and running statistics with names that a pattern matches.

        Patterns are those of `fnmatch`, or `aliases` of some. ValueError: one matches nothing, or nothing is left that
        travels.
        """
        other, known = self.plain._copy(), self.aliases() if patterns else {}
        other.personal = tuple(name for pattern in patterns for name in known.get(pattern, [pattern]))
        other._plain = self.plain if patterns else None
        check_patterns(other.personal, other.layout, known)
        return other

    @property
    def plain(self) -> Self:
        """The same task with nothing personal."""
        return self._plain or self

    def _copy(self) -> Self:
        other = copy.copy(self)
        other._flats, other._loans, other._layout = {}, Loans(), None
        return other

    def initial(self) -> Vector:
        """The initial parameters: from `model.init`, else from the model's checkpoint, else random.

        Random weights come from torch's global generator. ValueError: this machine does not have the file.
        """
        model = self.model()
        before = constants(model)
        init: str | None = getattr(self.model_settings, "init", None)  # a user's model may have no such setting
        if init is None and isinstance(model, Pretrained):
            model.load_pretrained()
        if init is not None:
            try:
                missing = load_weights(model, Path(init))
            except FileNotFoundError as error:  # the machine that started the run has the file
                raise ValueError(
                    f"model.init: {init} is not on {socket.gethostname()}: with several nodes all must see it at "
                    "the same path"
                ) from error
            if missing:
                print(f"model.init {init} lacks {', '.join(missing)}: these start from random weights", file=sys.stderr)
        check_constants(model, before)
        return self.layout.join(model.state_dict())

    def flat(self, device: str) -> FlatModel:
        """A model of this process on a device that nothing else uses now; load parameters before each use."""
        return self.numbered(device, self._loans.free(device))

    def lend(self, device: str, holder: object) -> FlatModel:
        """A model of this process that is `holder`'s alone, for as long as something refers to `holder`."""
        return self.numbered(device, self._loans.lend(device, holder))

    def numbered(self, device: str, number: int) -> FlatModel:
        """This process' model of a number, on a device; numbers below 0 are never lent."""
        if (device, number) not in self._flats:
            self._flats[device, number] = self.apart(device)
        return self._flats[device, number]

    def apart(self, device: str) -> FlatModel:
        """A new model with random weights, which this process does not keep."""
        if self.layout.size >= LARGE:
            gc.collect()  # models that were built before, for their layout or weights, may hold themselves in cycles
        model, kept = self._built()
        return FlatModel(model.to(device), kept.__contains__, self._stays)

    @property
    def layout(self) -> Layout:
        """Where the model's parameters lie in the vector, the same on all devices."""
        if self._layout is None:
            model, kept = self._built()
            self._layout = Layout.of(model, kept.__contains__, self._stays)
        return self._layout

    def norms(self) -> list[str]:
        """The names of the model's norm layers of all kinds."""
        return norm_layers(self._built()[0])

    def aliases(self) -> dict[str, list[str]]:
        """Aliases of patterns of names: `head` for the last layers, `norms` for the norm layers of all kinds."""
        model = self.plain._built()[0]
        layers = {"head": last_layers(model), "norms": norm_layers(model)}
        return {alias: [f"{name}.*" for name in names] for alias, names in layers.items() if names}

    def _stays(self, name: str) -> bool:
        return matches(name, self.personal)

    def _built(self) -> tuple[nn.Module, set[str]]:
        """A model with its adapters, and the names of the vector's entries: parameters and running statistics."""
        # Later random numbers must not depend on whether this process has built its model before.
        with torch.random.fork_rng(devices=[]):  # models are built on the CPU
            torch.manual_seed(0)  # a buffer that a constructor draws at random is the same in every process
            model = self.model()
            model = adapt(model, self.adapters) if self.adapters is not None else model
        return model, {name for name, _ in model.named_parameters()} | set(running_statistics(model))

    def described_features(self) -> FeatureDescription | None:
        """How an exported model computes its log-mels; None: other features, or ones that need all of a speaker's."""
        features = self.features
        return described(features) if isinstance(features, LogMelSettings) and not features.by_speaker else None

    def assets(self) -> Mapping[str, Any]:
        """Read-only objects that every actor needs besides the task; see `Algorithm.assets`."""
        return {}

    @abstractmethod
    def targets(self, data: Utterances) -> Targets:
        """The target of each utterance, by position. ValueError names an utterance without one."""

    def unlearnable(self, data: Utterances, targets: Targets) -> Mask | None:
        """Which utterances the model cannot learn, bool [utterances]: their loss is 0. None: it can learn any."""
        return None

    @abstractmethod
    def augment(self, batch: Batch) -> Batch:
        """The batch with training masks, drawn from torch's global generator."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, targets: Targets) -> Tensor:
        """The mean loss of a batch. `targets`: those of the batch's utterances, in its order."""

    def losses(self, params: Vector, data: Utterances, device: str) -> list[float]:
        """The loss of each utterance by itself, without masks or dropout."""
        flat, targets = self.flat(device), self.targets(data)
        flat.load(params)
        flat.model.eval()
        losses = []
        with torch.no_grad():
            for position in range(len(data)):
                batch = collate(data, np.array([position]))
                losses.append(float(self.loss(flat.model, batch.to(device), targets_at(targets, batch.positions))))
        return losses

    @abstractmethod
    def evaluate(
        self, params: Vector, data: Utterances, assets: Mapping[str, Any], device: str, final: bool
    ) -> Evaluation:
        """Score a data set, which may be empty. `final`: with the slower searches, and one row for each utterance.

        Without `final` there are rows for `SHOWN` utterances, which `fedray watch --web` shows.
        """

    @abstractmethod
    def export(self, params: Vector, folder: Path) -> None:
        """Write the model so that it loads without fedray."""
