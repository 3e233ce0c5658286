"""Classification of clips as a task: cross-entropy, accuracy and macro-F1 in percent, by whole clips or by the mean over their windows."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedray.core.cache import write_atomically
from fedray.core.config import positive
from fedray.core.metrics import Metrics
from fedray.core.types import Evaluation, Vector
from fedray.data.augment import SpecAugment, SpecAugmentSettings
from fedray.data.dataset import Batch, Utterances, batches, codes
from fedray.data.features import FeatureSettings
from fedray.data.federated import SpeechData
from fedray.data.manifest import Manifest
from fedray.models import audio_cnn, crnn
from fedray.training.task import Task
from fedray.training.windows import all_windows, random_window

EVALUATION_BATCH = 64
COLUMNS = ("label", "text")


@dataclass(frozen=True)
class ClassificationSettings:
    label: str = "label"  # label | text: the column of the manifest that is the class
    classes: list[str] | None = None  # null: all that server and clients have, sorted
    window: float | None = None  # seconds: trained on a random window a clip, judged by the mean logits of all; null: by whole clips
    augment: SpecAugmentSettings = field(default_factory=lambda: SpecAugmentSettings(time_masks=0, frequency_masks=0))

    def __post_init__(self) -> None:
        if self.label not in COLUMNS:
            raise ValueError(f"label is one of {', '.join(COLUMNS)}, not {self.label!r}")
        if self.classes is not None and (len(self.classes) < 2 or len(set(self.classes)) < len(self.classes)):
            raise ValueError(f"classes are two or more different labels, not {self.classes}")
        positive(window=self.window)


class Classification(Task):
    """One class a clip. Models give logits [B, classes] for features [B, T, bins] and lengths [B]."""

    Settings = ClassificationSettings
    settings: ClassificationSettings
    # The clients' labels are among the classes, so what they have decides how many outputs a model has, and in which order.
    init_depends = ("task.kind", "task.label", "task.classes", "task.window", "task.augment")
    best = ("dev/accuracy", "max")

    def __init__(self, settings: ClassificationSettings, model: Any, features: FeatureSettings, data: SpeechData) -> None:
        """ValueError for a label that is not among the classes, wherever in the federation, and for a clip to be scored without one."""
        super().__init__(settings, model, features)
        if hasattr(self.model_class, "ctc"):
            raise ValueError(
                f"task.kind classification cannot train {self.model_class.__name__}, a recogniser: set model.kind crnn or audio_cnn"
            )
        training = data.training()
        self.classes = settings.classes or sorted(set().union(*(part.distinct(settings.label) for part in training)))
        if len(self.classes) < 2:
            raise ValueError(
                f"a classification needs two classes, but the {settings.label}s of the training data are {self.classes}: "
                "name the column of the labels in data.options, or set task.label=text"
            )
        self.outputs = len(self.classes)
        self._augment = SpecAugment(settings.augment)
        self._window = None if settings.window is None else features.frames(settings.window)
        self._known: weakref.WeakKeyDictionary[Manifest, np.ndarray] = weakref.WeakKeyDictionary()
        for part in training:
            self._ids(part, unlabelled=True)
        for split in data.splits():
            self._ids(data.evaluation(split))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_known": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._known = weakref.WeakKeyDictionary()

    def targets(self, data: Utterances) -> np.ndarray:
        """Class numbers, int64 [len(data)]; ValueError names an utterance without a label, or with one that is no class."""
        return self._ids(data)

    def known(self, data: Utterances) -> np.ndarray:
        """The same with -1 for an utterance without a label: what a simulation scores pseudo-labels against."""
        return self._ids(data, unlabelled=True)

    def augment(self, batch: Batch) -> Batch:
        masks = self.settings.augment
        if self._window is not None:
            batch = random_window(batch, self._window)
        return self._augment(batch) if masks.time_masks or masks.frequency_masks else batch

    def loss(self, model: Any, batch: Batch, targets: np.ndarray) -> Tensor:
        return cross_entropy(model(batch.features, batch.lengths), torch.from_numpy(targets).to(batch.features.device))

    def classes_of(self, batch: Batch, targets: np.ndarray) -> Tensor:
        """The class numbers of a batch, int64 [batch], from those of all utterances."""
        return torch.from_numpy(targets[batch.positions]).to(batch.features.device)

    def logits(self, params: Vector, data: Utterances, device: str) -> np.ndarray:
        """float32 [len(data), classes], in the order of `data`."""
        flat = self.flat(device)
        flat.load(params)
        flat.model.eval()
        found = np.empty((len(data), self.outputs), np.float32)
        with torch.no_grad():
            for batch in batches(data, EVALUATION_BATCH, None):
                windows, clips = (batch, None) if self._window is None else all_windows(batch, self._window)
                moved = windows.to(device)
                logits = flat.model(moved.features, moved.lengths).cpu().numpy()
                found[batch.positions] = logits if clips is None else np.add.reduceat(logits, _firsts(clips)) / np.bincount(clips)[:, None]
        return found

    def evaluate(self, params: Vector, data: Utterances, assets: Mapping[str, Any], device: str, final: bool) -> Evaluation:
        """accuracy and macro_f1 in percent, and loss, the mean cross-entropy; `final` adds a row an utterance, its `errors` 0 or 1.

        Macro-F1 is the plain mean over the classes that occur among targets or answers, each from counts of all clips (as scikit-learn's).
        """
        if not len(data):
            return Evaluation(Metrics())
        targets, logits = self.targets(data), self.logits(params, data, device)
        answers = logits.argmax(1)
        losses = cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(targets), reduction="sum")
        metrics = Metrics(accuracy=(100.0 * int((answers == targets).sum()), len(data)), loss=(float(losses), len(data)))
        right = np.bincount(targets[answers == targets], minlength=self.outputs)
        both = np.bincount(targets, minlength=self.outputs) + np.bincount(answers, minlength=self.outputs)  # 2 TP + FP + FN
        metrics += Metrics.of({f"macro_f1|{name}": (200.0 * right[place], both[place]) for place, name in enumerate(self.classes)})
        rows = zip(data.ids, data.speakers, targets.tolist(), answers.tolist(), strict=True) if final else ()
        return Evaluation(metrics, [self._row(*row) for row in rows])

    def export(self, params: Vector, folder: Path) -> None:
        """model.pt (a state dict), classes.json, and for a model of ours example.py, which needs torch alone."""
        flat = self.flat("cpu")
        flat.load(params)
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.detach().clone() for name, value in flat.model.state_dict().items()}
        write_atomically(folder / "model.pt", lambda path: torch.save(state, path))
        texts = {"classes.json": json.dumps(self.classes, ensure_ascii=False, indent=1) + "\n"}
        if isinstance(flat.model, crnn.CRNN):
            texts["example.py"] = crnn.example(flat.model.settings, self.described_features(), self._window)
        elif isinstance(flat.model, audio_cnn.AudioCNN):
            texts["example.py"] = audio_cnn.example(self.described_features(), self._window)
        for name, text in texts.items():
            write_atomically(folder / name, lambda path, text=text: path.write_text(text, encoding="utf-8"))

    def _row(self, utterance: str, speaker: str, target: int, answer: int) -> dict[str, Any]:
        words = {"reference": self.classes[target], "hypothesis": self.classes[answer]}
        return {"utterance": utterance, "speaker": speaker, **words, "errors": int(target != answer)}

    def _ids(self, data: Utterances, unlabelled: bool = False) -> np.ndarray:
        """Class numbers, -1 where there is no label, which is an error unless `unlabelled`."""
        known = self._known.get(data.manifest)
        if known is None:  # looked up once for all utterances: clients come and go, their manifest stays
            known = self._known[data.manifest] = codes(data.manifest, self.settings.label, self.classes)
        ids = known[data.rows]
        if ids.size and ids.min() < 0:
            self._refuse(data, np.flatnonzero(ids < 0), unlabelled)
        return ids

    def _refuse(self, data: Utterances, positions: np.ndarray, unlabelled: bool) -> None:
        odd = data.take(positions)
        for utterance, label in zip(odd.ids, odd.column(self.settings.label), strict=True):
            if label is not None:
                known = ", ".join(self.classes)
                raise ValueError(f"utterance {utterance}: its {self.settings.label} {label!r} is none of the classes {known}")
            if not unlabelled:
                raise ValueError(f"utterance {utterance} has no {self.settings.label}, and its class is asked for")


def _firsts(clips: np.ndarray) -> np.ndarray:
    """Where each clip's windows begin."""
    return np.flatnonzero(np.diff(clips, prepend=-1))
