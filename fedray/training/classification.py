"""Classification of clips as a task: cross-entropy, accuracy and macro-F1 in percent.

The logits of a clip come from the whole clip, or are the mean over its windows.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedray.core.drawing import spread
from fedray.core.metrics import Metrics
from fedray.core.ranges import Positive, Ranged, one_of
from fedray.core.settings import Choice
from fedray.core.types import Evaluation, Vector
from fedray.data.features.augment import SpecAugment, SpecAugmentSettings
from fedray.data.features.dataset import Batch, Utterances, batches, codes
from fedray.data.features.settings import FeatureSettings
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import Manifest
from fedray.models import CLASSIFIERS, audio_cnn, crnn, export_encoder
from fedray.models.encoder import EncoderClassifier
from fedray.storage.files import write_whole
from fedray.storage.serialize import save_tensors
from fedray.training.task import SHOWN, Targets, Task
from fedray.training.windows import all_windows, random_window

ClassNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassificationSettings(Ranged):
    """Classes, windows and masks."""

    label: str = one_of(("label", "text"))  # label | text: the column of the manifest that holds the class
    classes: list[str] | None = None  # the classes; null: all classes of the server and the clients, sorted
    # Seconds: train on a random window of each clip, score by the mean logits of all its windows. null: whole clips.
    window: Positive | None = None
    # Seconds between the starts of the windows that a score takes. null: the fewest windows that cover the clip.
    hop: Positive | None = None
    augment: SpecAugmentSettings = field(default_factory=lambda: SpecAugmentSettings(time_masks=0, frequency_masks=0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes is not None and (len(self.classes) < 2 or len(set(self.classes)) < len(self.classes)):
            raise ValueError(f"classes must be two or more different labels, not {self.classes}")
        if self.hop is not None and self.window is None:
            raise ValueError("hop is the distance of windows, and clips are whole: set window, or remove hop")


class Classification(Task):
    """One class for each clip. Models map features [B, T, bins] and lengths [B] to logits [B, classes]."""

    Settings = ClassificationSettings
    settings: ClassificationSettings
    # The clients' labels are among the classes, so they decide the number and the order of the model's outputs.
    init_depends = ("task.kind", "task.label", "task.classes", "task.window", "task.augment")
    best = ("dev/accuracy", "max")
    evaluation_batch = 64

    def __init__(
        self, settings: ClassificationSettings, model: Choice, features: FeatureSettings, data: SpeechData
    ) -> None:
        """Set the classes. ValueError: a label is not among them, or a clip of dev or test has no label."""
        super().__init__(settings, model, features, data)
        training = data.training()
        self.classes = settings.classes or sorted(set().union(*(part.distinct(settings.label) for part in training)))
        if len(self.classes) < 2:
            raise ValueError(
                f"classification needs two classes, but the {settings.label}s of the training data are {self.classes}: "
                "name the column of the labels in data.options, or set task.label=text"
            )
        self.outputs = len(self.classes)
        self._augment = SpecAugment(settings.augment)
        self._window = None if settings.window is None else features.frames(settings.window)
        self._hop = None if settings.hop is None else max(1, round(settings.hop / features.hop_seconds))
        self._class_numbers: weakref.WeakKeyDictionary[Manifest, ClassNumbers] = weakref.WeakKeyDictionary()
        for part in training:
            self._ids(part, unlabelled=True)
        for split in data.splits():
            self._ids(data.evaluation(split))

    @classmethod
    def check_setup(cls, settings: ClassificationSettings, model: Choice, features: FeatureSettings) -> None:
        super().check_setup(settings, model, features)
        model_class = cls.network(model.kind)
        if hasattr(model_class, "ctc"):
            raise ValueError(
                f"task.kind classification cannot train {model_class.__name__}: set model.kind=crnn, audio_cnn or "
                "encoder"
            )

    @classmethod
    def network(cls, kind: str) -> type[nn.Module]:
        found = super().network(kind)
        return CLASSIFIERS.get(found, found)

    def model(self) -> nn.Module:
        if not issubclass(self.model_class, EncoderClassifier):
            return super().model()
        return self.model_class(self.model_settings, self.features.bins, self.outputs, self.classes)

    @classmethod
    def column(cls, settings: ClassificationSettings) -> str:
        return settings.label

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_class_numbers": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._class_numbers = weakref.WeakKeyDictionary()

    def targets(self, data: Utterances) -> ClassNumbers:
        """Class numbers [len(data)]. ValueError names an utterance without a label, or with one that is not a class."""
        return self._ids(data)

    def known(self, data: Utterances) -> ClassNumbers:
        """Class numbers [len(data)], -1 for an utterance without a label: the truth that scores pseudo-labels."""
        return self._ids(data, unlabelled=True)

    def augment(self, batch: Batch) -> Batch:
        if self._window is not None:
            batch = random_window(batch, self._window, self.features.silence)
        return self._augment(batch)

    def loss(self, model: nn.Module, batch: Batch, targets: Targets) -> Tensor:
        """The mean cross-entropy."""
        assert isinstance(targets, np.ndarray)
        logits = model(batch.features, batch.lengths)
        return cross_entropy(logits, torch.from_numpy(targets).to(batch.features.device))

    def logits(self, params: Vector, data: Utterances, device: str) -> npt.NDArray[np.float32]:
        """The logits of each clip, [len(data), classes], in the order of `data`."""
        flat = self.flat(device)
        flat.load(params)
        flat.model.eval()
        of_clips, size = np.empty((len(data), self.outputs), np.float32), self.scored_together
        with torch.no_grad():
            for batch in batches(data, size, None):
                windows, clips = batch, None
                if self._window is not None:
                    windows, clips = all_windows(batch, self._window, self.features.silence, self._hop)
                moved = windows.to(device)
                parts = zip(torch.split(moved.features, size), torch.split(moved.lengths, size), strict=True)
                logits = torch.cat([flat.model(*part) for part in parts]).cpu().numpy()
                of_clips[batch.positions] = logits if clips is None else mean_of_windows(logits, clips)
        return of_clips

    def losses(self, params: Vector, data: Utterances, device: str) -> list[float]:
        """The cross-entropy of each clip, from the mean logits over its windows."""
        logits = torch.from_numpy(self.logits(params, data, device)).double()
        found: list[float] = cross_entropy(logits, torch.from_numpy(self.targets(data)), reduction="none").tolist()
        return found

    def evaluate(
        self, params: Vector, data: Utterances, assets: Mapping[str, Any], device: str, final: bool
    ) -> Evaluation:
        """Score the model's predictions, with rows of all utterances (`final`) or of some."""
        return self.scored(data, self.logits(params, data, device), final)

    def scored(self, data: Utterances, logits: npt.NDArray[np.float32], final: bool) -> Evaluation:
        """Score logits [len(data), classes]: `accuracy` and `macro_f1` in percent, and `loss`, the mean cross-entropy.

        Macro-F1 is the unweighted mean over the classes that occur among targets or predictions, each from the counts
        of all clips, as in scikit-learn. Rows have `errors` 0 or 1: of each utterance (`final`), or of some.
        """
        if not len(data):
            return Evaluation(Metrics())
        targets = self.targets(data)
        predictions = logits.argmax(1)
        correct = predictions == targets
        losses = cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(targets), reduction="sum")
        metrics = Metrics(accuracy=(100.0 * int(correct.sum()), len(data)), loss=(float(losses), len(data)))
        true_positives = np.bincount(targets[correct], minlength=self.outputs)
        # 2 TP + FP + FN
        both = np.bincount(targets, minlength=self.outputs) + np.bincount(predictions, minlength=self.outputs)
        f1 = zip(self.classes, true_positives, both, strict=True)
        metrics += Metrics.of({f"macro_f1|{name}": (200.0 * positives, count) for name, positives, count in f1})
        rows = list(zip(data.ids, data.speakers, targets.tolist(), predictions.tolist(), strict=True))
        chosen = range(len(rows)) if final else spread(len(rows), SHOWN)
        return Evaluation(metrics, [self._row(*rows[position]) for position in chosen])

    def export(self, params: Vector, folder: Path) -> None:
        """Write model.pt (a state dict), classes.json and, for fedray's own models, example.py (needs only torch).

        A pre-trained encoder is written as a checkpoint of transformers.
        """
        flat = self.flat("cpu")
        flat.load(params)
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(flat.model, EncoderClassifier):
            export_encoder.save_classifier(flat.model, self.classes, folder)
            return
        state = {name: value.detach().clone() for name, value in flat.model.state_dict().items()}
        save_tensors(state, folder / "model.pt")
        texts = {"classes.json": json.dumps(self.classes, ensure_ascii=False, indent=1) + "\n"}
        if (features := self.described_features()) is not None and isinstance(flat.model, crnn.CRNN):
            texts["example.py"] = crnn.example(flat.model.settings, features, self._window, self._hop)
        elif features is not None and isinstance(flat.model, audio_cnn.AudioCNN):
            texts["example.py"] = audio_cnn.example(features, self._window, self._hop)
        for name, text in texts.items():
            write_whole(folder / name, text)

    def _row(self, utterance: str, speaker: str, target: int, prediction: int) -> dict[str, object]:
        words = {"reference": self.classes[target], "hypothesis": self.classes[prediction]}
        return {"utterance": utterance, "speaker": speaker, **words, "errors": int(target != prediction)}

    def _ids(self, data: Utterances, unlabelled: bool = False) -> ClassNumbers:
        """Class numbers; an utterance without a label has -1 with `unlabelled`, else it raises ValueError."""
        of_manifest = self._class_numbers.get(data.manifest)
        if of_manifest is None:  # computed once for the whole manifest, which all its clients share
            of_manifest = codes(data.manifest, self.settings.label, self.classes)
            self._class_numbers[data.manifest] = of_manifest
        ids = of_manifest[data.rows]
        if ids.size and ids.min() < 0:
            self._refuse(data, np.flatnonzero(ids < 0), unlabelled)
        return ids

    def _refuse(self, data: Utterances, positions: ClassNumbers, unlabelled: bool) -> None:
        """Raise ValueError for a label that is not a class and, unless `unlabelled`, for an utterance without one."""
        without_class, column = data.take(positions), self.settings.label
        for utterance, label in zip(without_class.ids, without_class.column(column), strict=True):
            if label is not None:
                raise ValueError(
                    f"utterance {utterance}: its {column} {label!r} is none of the classes {', '.join(self.classes)}: "
                    "add it to task.classes, or leave the row out"
                )
            if not unlabelled:
                raise ValueError(
                    f"utterance {utterance} has no {column}, which its class is read from: add it, or leave the row out"
                )


def mean_of_windows(logits: npt.NDArray[np.float32], clips: ClassNumbers) -> npt.NDArray[np.float64]:
    """The mean logits of each clip, [clips, classes], over its windows. `clips`: the clip of each window, ascending."""
    first_windows = np.flatnonzero(np.diff(clips, prepend=-1))
    means: npt.NDArray[np.float64] = np.add.reduceat(logits, first_windows) / np.bincount(clips)[:, None]
    return means
