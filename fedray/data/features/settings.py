"""What a kind of features is: a frozen dataclass whose fields are the keys of the section `features`.

A user's kind is a subclass of `FeatureSettings`, registered as `FEATURES["mine"] = Mine` (`fedray.data.features.kinds`)
in a module that `imports` names.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from fedray.core.ranges import Ranged
from fedray.data.features import audio
from fedray.data.manifest import Manifest, Utterance

# The types of number in a store -> what they are multiplied by when they are read.
SCALES = {"float16": 1.0, "int16": 1 / 32768}


class FeatureSettings(Ranged, ABC):
    """How a recording becomes the input of a model."""

    bins: int  # values of a frame
    sample_rate: int  # Hz; audio of another rate is resampled
    stored: ClassVar[str] = "float16"  # one of SCALES; int16 holds -1 to 1
    # True: features of certain checkpoints, for the models alone that name them (`features_kind`).
    of_checkpoints: ClassVar[bool] = False
    reads_audio: ClassVar[bool] = True

    @property
    def silence(self) -> float:
        """The value of padding."""
        return 0.0

    @property
    def by_speaker(self) -> bool:
        """Whether a store scales the features of each speaker to mean 0 and variance 1 in each bin."""
        return getattr(self, "normalise", None) == "speaker"

    @property
    @abstractmethod
    def hop_seconds(self) -> float:
        """Seconds between two frames."""

    @abstractmethod
    def frames(self, seconds: float) -> int:
        """Number of frames in a recording of this length, at least 1."""

    @abstractmethod
    def compute(self, waveform: torch.Tensor) -> torch.Tensor:
        """float32 [samples] at `sample_rate` -> float32 [frames, bins]. ValueError: the recording cannot be used."""

    def of(self, utterance: Utterance, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> torch.Tensor:
        """The features of an utterance, [frames, bins]. `change`: what to do to its waveform first.

        AudioError: its audio cannot be used.
        """
        waveform = audio.read(utterance.path, self.sample_rate, utterance.offset, utterance.seconds)
        try:
            return self.compute(waveform if change is None else change(waveform))
        except audio.AudioError:
            raise
        except ValueError as error:
            raise audio.AudioError(utterance.path, str(error)) from error

    def depends(self, manifest: Manifest) -> Any:
        """What features depend on besides audio and settings, as plain data; None: on nothing.

        A user's kind depends on its source.
        fedray's kinds have a number in `fedray.data.features.store`.
        """
        cls = type(self)
        if cls.__module__.partition(".")[0] == "fedray":
            return None
        try:
            source = inspect.getsource(sys.modules[cls.__module__])
        except (OSError, TypeError):  # a class that was typed into a notebook
            source = inspect.getsource(cls)
        return hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
