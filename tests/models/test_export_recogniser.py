from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import soundfile
import torch

from fedray.data.features.log_mel import LogMelSettings
from fedray.data.features.log_mel import log_mels as fedrays
from fedray.models.conformer import Conformer, ConformerSettings
from fedray.models.crdnn import CRDNN, CRDNNSettings
from fedray.models.export_recogniser import export, write_features

TOKENS = ["<blank>", " ", *"abcde"]


class Letters:
    def save(self, folder):
        (folder / "tokens.txt").write_text(
            "".join(f"{token.replace(' ', '<space>')}\n" for token in TOKENS), encoding="utf-8"
        )


FEATURES = {"sample_rate": 8000, "fft": 256, "window": 200, "hop": 80, "bins": 20, "floor": 1e-8, "normalise": "mean"}


def log_mels(wave: torch.Tensor) -> torch.Tensor:
    """The features by definition: Hann windows of 200 samples every 80, power spectrum of 256 points, mel filters."""
    from torchaudio.functional import melscale_fbanks

    frames = wave.unfold(0, 200, 80) * torch.hann_window(200)
    power = torch.fft.rfft(frames, 256).abs().square()
    mels = power @ melscale_fbanks(129, 0.0, 4000.0, 20, 8000)
    mels = mels.clamp(min=1e-8).log()
    return mels - mels.mean(0)


# Runs the scripts of all folders in one process in which importing fedray fails.
CHECK = """
import contextlib, io, json, os, pathlib, runpy, sys
sys.argv = ["example.py", "speech.wav"]
sys.modules["fedray"] = None
import numpy
said = {}
for folder in sorted(path.parent for path in pathlib.Path().glob("*/model")):
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.chdir(folder):
        values = runpy.run_path("model/example.py")
        numpy.save("log_probs.npy", values["log_probs"].numpy())
    said[folder.name] = text.getvalue()
assert not [name for name in sys.modules if name.startswith("fedray.")]
print(json.dumps(said))
"""


SMALL = {"d_model": 16, "heads": 2, "ffn": 32, "kernel": 7}
MODELS = {
    "conv1d": (Conformer, ConformerSettings(**SMALL)),
    "conv2d with a decoder": (
        Conformer,
        ConformerSettings(**SMALL, front="conv2d", attention="RelPosMHAXL", decoder_layers=1),
    ),
    "crdnn": (CRDNN, CRDNNSettings(channels=(4, 6), rnn_neurons=8, rnn_layers=2, dnn_neurons=12)),
    "crdnn with a decoder": (
        CRDNN,
        CRDNNSettings(channels=(4,), rnn="gru", rnn_layers=2, rnn_neurons=8, dnn_neurons=12, decoder_layers=1),
    ),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """All models, exported to folders of their names, and what their scripts print for the same speech."""
    root = tmp_path_factory.mktemp("exported")
    wave = np.random.default_rng(0).normal(0, 0.1, 8000).astype(np.float32)
    models = {}
    for name, (kind, settings) in MODELS.items():
        torch.manual_seed(0)
        models[name] = kind(settings, 20, len(TOKENS)).eval()
        torch.nn.init.normal_(models[name].ctc_head.w.weight)
        export(models[name], Letters(), FEATURES, root / name / "model")
        soundfile.write(root / name / "speech.wav", wave, 8000, subtype="FLOAT")
    done = subprocess.run([sys.executable, "-I", "-c", CHECK], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root, wave, models, json.loads(done.stdout)


@pytest.mark.parametrize("name", MODELS)
def test_the_folder_works_without_fedray(exported, name):
    root, wave, models, said = exported
    folder = root / name
    assert sorted(path.name for path in (folder / "model").iterdir()) == [
        "example.py",
        "hyperparams.yaml",
        "model.pt",
        "tokens.txt",
    ]

    features = log_mels(torch.from_numpy(wave))
    with torch.no_grad():
        log_probs, lengths = models[name](features[None], torch.tensor([len(features)]))
    np.testing.assert_allclose(np.load(folder / "log_probs.npy"), log_probs[0].numpy(), atol=1e-3)
    best = log_probs[0].argmax(-1).unique_consecutive().tolist()
    text = "".join(TOKENS[token] for token in best if token)
    assert text and said[name] == f"{text}\n"


@pytest.mark.parametrize("normalise", ["mean", "mean_variance", "waveform"])
def test_the_features_of_a_users_model_can_be_computed_without_fedray(normalise, tmp_path):
    """The comment in features.yaml is code that computes the features with the file's objects."""
    from hyperpyyaml import load_hyperpyyaml

    write_features({**FEATURES, "normalise": normalise}, tmp_path)
    text = (tmp_path / "features.yaml").read_text(encoding="utf-8")
    code = "\n".join(line.removeprefix("#     ") for line in text.splitlines() if line.startswith("#     "))
    wave = torch.from_numpy(np.random.default_rng(0).normal(0.2, 0.1, 8000).astype(np.float32))
    names = {**load_hyperpyyaml(text), "wave": wave}
    assert (names["sample_rate"], names["normalise"]) == (8000, normalise)
    exec(code, names)
    settings = LogMelSettings(sample_rate=8000, bins=20, normalise=normalise)
    torch.testing.assert_close(names["mels"], fedrays(wave, settings), atol=1e-3, rtol=1e-3)


def test_wrong_features_are_named(tmp_path):
    model = Conformer(ConformerSettings(d_model=16, heads=2, ffn=32, kernel=7), 20, len(TOKENS))
    with pytest.raises(ValueError, match="lack fft, floor"):
        export(model, Letters(), {name: FEATURES[name] for name in FEATURES if name not in ("fft", "floor")}, tmp_path)
    with pytest.raises(ValueError, match="'max'"):
        export(model, Letters(), {**FEATURES, "normalise": "max"}, tmp_path)
