"""Write the model of a finished run as ONNX, and compare the file with the model."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import torch

from fedray.core.types import RunError
from fedray.data.features.log_mel import LogMelSettings, log_mels
from fedray.data.text.tokenisers import SentencePiece, load_tokeniser
from fedray.experiment.config import Config, load
from fedray.models import MODELS, export_onnx
from fedray.models.export_onnx import INSTALL, Unpadded
from fedray.models.weights import load_weights
from fedray.runs import places
from fedray.runs.folder import RunFolder
from fedray.runs.strangers import check_own, read_config
from fedray.training.classification import ClassificationSettings
from fedray.training.recognition import RecognitionSettings
from fedray.training.task import described
from fedray.training.translation import TranslationSettings

TOLERANCE = 1e-4  # of log-probabilities and logits


def to_onnx(run: str | os.PathLike[str]) -> tuple[str, float]:
    """Write model.onnx and stream.py into `model/` of a finished run; see `fedray.models.export_onnx`.

    Returns the path of model.onnx, and the largest difference between its outputs in onnxruntime and the model's, on
    noise of several lengths. ValueError: the folder holds no finished run, its model cannot be written as ONNX, or
    packages are missing. RunError: the outputs differ.
    """
    folder = RunFolder(places.place(run))
    folder.check_is_run()
    if not folder.exists("results.json"):  # a run that is resumed still has the model of before
        raise ValueError(f"{folder.place} has no results.json: the run has not finished: `fedray resume` continues it")
    if not folder.exists("model/model.pt"):
        raise ValueError(f"{folder.place} has no model/model.pt: the run saved another kind of model")
    check_own(folder, "config.yaml", "model/model.pt", "model/hyperparams.yaml")
    given = folder.root / "config.yaml" if folder.root is not None else read_config(folder)
    config, _ = load(given)
    with tempfile.TemporaryDirectory(prefix="fedray-") as saved:
        folder.storage.download("model", Path(saved))
        model, labels = read_model(config, Path(saved))
    features = config.features
    if not isinstance(features, LogMelSettings) or features.by_speaker:
        other = (
            "needs all of a speaker's (normalise=speaker)" if features.by_speaker else "has features of another kind"
        )
        raise ValueError(f"model.onnx computes log-mels from a waveform: this run {other}")
    window = getattr(config.task.settings, "window", None)
    frames = config.features.frames(window) if window is not None else None
    largest = 0.0

    def build(path: Path) -> None:
        nonlocal largest
        export_onnx.write(model, labels, described(features), frames, path)
        largest = difference(model, features, path / "model.onnx")
        if largest > TOLERANCE:
            raise RunError(f"model.onnx is not written: its outputs differ from the model's by {largest:g}")

    with folder.locked():  # keeps out another export, and a resumed run that ends
        folder.export("model", build)
    return folder.storage.shown("model/model.onnx"), largest


def read_model(config: Config, folder: Path) -> tuple[torch.nn.Module, list[str]]:
    """A run's model from its folder `model`, and the text of each token or the names of the classes."""
    task = config.task.settings
    if isinstance(task, RecognitionSettings) and task.ctc_weight == 0:
        raise ValueError("task.ctc_weight=0: the CTC head, which would be written as ONNX, is not trained")
    if isinstance(task, TranslationSettings):
        raise ValueError(
            "task.kind translation cannot be exported, since model.onnx holds no decoder: use the files in model/"
        )
    if isinstance(task, ClassificationSettings):
        labels = json.loads((folder / "classes.json").read_text(encoding="utf-8"))
    else:
        tokeniser = load_tokeniser(folder)
        labels = tokeniser.tokens
        if isinstance(tokeniser, SentencePiece):
            labels = [piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ") for piece in labels]
    with torch.random.fork_rng(devices=[]):
        model = MODELS[config.model.kind](config.model.settings, config.features.bins, len(labels)).eval()
    load_weights(model, folder / "model.pt")
    return model, labels


def difference(model: torch.nn.Module, features: LogMelSettings, file: Path) -> float:
    """The largest difference between the outputs of model.onnx and of the model, on noise of several lengths."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ValueError(f"the comparison of model.onnx with the model {INSTALL}") from error
    assert isinstance(model, Unpadded)
    session = onnxruntime.InferenceSession(str(file))
    generator, largest = torch.Generator().manual_seed(1), 0.0
    for batch, frames in ((1, model.shortest), (3, 4 * model.shortest + 1), (2, 200), (1, 501)):
        waves = 0.1 * torch.randn(batch, (frames - 1) * features.hop + features.window, generator=generator)
        with torch.no_grad():
            expected = model.unpadded(torch.stack([log_mels(wave, features) for wave in waves])).numpy()
        (outputs,) = session.run(None, {"waveform": waves.numpy()})
        alike = outputs.shape == expected.shape and np.isfinite(outputs).all()
        largest = max(largest, float(np.abs(outputs - expected).max()) if alike else np.inf)
    return largest
