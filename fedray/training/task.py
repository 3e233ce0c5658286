"""What a task is: the model that is trained, its targets, its loss and its scores."""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from fedray.core.config import kind_of
from fedray.core.parameters import FlatModel, Layout
from fedray.core.types import Evaluation, Vector
from fedray.data.dataset import Batch, Utterances
from fedray.data.features import FLOOR, FeatureSettings, fft_size
from fedray.models import MODELS
from fedray.models.adapters import LoRASettings, adapt
from fedray.models.norms import running_statistics
from fedray.models.weights import load_weights


class Task(ABC):
    """Built once from the configuration and the federation, then copied to every actor, where each copy builds its own model.

    A subclass sets `outputs` before it asks for a model: how many outputs that has.
    """

    Settings: ClassVar[type]  # a frozen dataclass: the section `task` of a configuration, without its kind
    init_depends: ClassVar[tuple[str, ...]]  # configuration keys that weights trained on this task follow from
    best: ClassVar[tuple[str, str]]  # the metric that picks the best round, and whether it is to be small ("min") or large ("max")
    outputs: int

    def __init__(self, settings: Any, model: Any, features: FeatureSettings) -> None:
        """`model` are the settings of a model."""
        self.settings, self.features, self.model_settings = settings, features, model
        # The class itself, not its name: a model of the user's travels by value, and the actors' registry does not know it.
        self.model_class = MODELS[kind_of(model, MODELS)]
        hears = getattr(self.model_class, "hears", "logmel")
        if features.kind != hears:
            raise ValueError(f"model.kind {kind_of(model, MODELS)} hears features.kind={hears}, not {features.kind}: set that")
        self.adapters: LoRASettings | None = None
        self._flats: dict[str, FlatModel] = {}
        self._layout: Layout | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_flats": {}}

    def model(self) -> nn.Module:
        """A new model; its weights are drawn from torch's global generator."""
        return self.model_class(self.model_settings, self.features.bins, self.outputs)

    def with_model(self, settings: Any) -> Self:
        """The same task for a model of the same kind with other settings."""
        other = copy.copy(self)
        other.model_settings, other._flats, other._layout = settings, {}, None
        return other

    def with_adapters(self, settings: LoRASettings) -> Self:
        """The same task for the same model, frozen, with adapters: its parameters are these, and behind them those of the model."""
        other = copy.copy(self)
        other.adapters, other._flats, other._layout = settings, {}, None
        return other

    def initial(self) -> Vector:
        """The parameters to start from: drawn from torch's global generator, the model's own, or read from `model.init`."""
        model = self.model()
        if hasattr(model, "load_pretrained") and self.model_settings.init is None:
            model.load_pretrained()
        if self.model_settings.init is not None:
            left = load_weights(model, Path(self.model_settings.init))
            if left:
                print(f"model.init {self.model_settings.init} has no {', '.join(left)}: drawn at random", file=sys.stderr)
        return self.layout.join(model.state_dict())

    def flat(self, device: str) -> FlatModel:
        """This process' model on a device, to be loaded before each use."""
        if device not in self._flats:
            model, kept = self._built()
            self._flats[device] = FlatModel(model.to(device), keep=kept.__contains__)
        return self._flats[device]

    @property
    def layout(self) -> Layout:
        """Of the model's parameters in the vector, the same on all devices."""
        if self._layout is None:
            model, kept = self._built()
            self._layout = Layout.of(model, kept.__contains__)
        return self._layout

    def _built(self) -> tuple[nn.Module, set[str]]:
        """A model with its adapters, and the names of what travels: of buffers running statistics alone."""
        with torch.random.fork_rng():  # what is drawn next must not depend on whether this process had built its model before
            model = self.model()
            model = adapt(model, self.adapters) if self.adapters is not None else model
        return model, {name for name, _ in model.named_parameters()} | set(running_statistics(model))

    def described_features(self) -> dict[str, Any]:
        """What an exported model needs to know to compute its features (see `fedray.models.export.export`)."""
        settings = self.features
        return asdict(settings) | {"window": settings.window, "hop": settings.hop, "fft": fft_size(settings), "floor": FLOOR}

    def assets(self) -> Mapping[str, Any]:
        """What every actor needs besides; see `Algorithm.assets`."""
        return {}

    @abstractmethod
    def targets(self, data: Utterances) -> Sequence[Any]:
        """What the model is to say of each utterance, by position; ValueError names an utterance of which that is not known."""

    @abstractmethod
    def augment(self, batch: Batch) -> Batch:
        """The batch as it is trained on, with masks from torch's global generator."""

    @abstractmethod
    def loss(self, model: Any, batch: Batch, targets: Sequence[Any]) -> Tensor:
        """The mean over the batch; `targets` are those of its utterances."""

    @abstractmethod
    def evaluate(self, params: Vector, data: Utterances, assets: Mapping[str, Any], device: str, final: bool) -> Evaluation:
        """Scores of a data set, which may be empty; `final` may take longer, and adds a row an utterance."""

    @abstractmethod
    def export(self, params: Vector, folder: Path) -> None:
        """Write the model so that it loads without fedray."""
