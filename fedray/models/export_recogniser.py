"""Write a trained recogniser to a folder that loads with torch and SpeechBrain, without fedray.

model.pt           state dict (torch.load(weights_only=True))
hyperparams.yaml   HyperPyYAML: the features, the parts of the model, and the model as a torch ModuleDict of them
tokens.txt, or tokeniser.model of SentencePiece
example.py         python example.py speech.wav prints the text

A user's model has features.yaml in place of hyperparams.yaml and example.py: fedray cannot write how it is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypedDict

from fedray.models.conformer import Conformer
from fedray.models.crdnn import CRDNN
from fedray.storage.files import write_whole
from fedray.storage.serialize import save_tensors


class Saves(Protocol):
    """A tokeniser that can write itself to a folder."""

    def save(self, folder: Path) -> None:
        """Write the tokens into a folder."""


class FeatureDescription(TypedDict):
    """How to compute the log-mels that a model was trained on."""

    sample_rate: int  # Hz
    fft: int  # samples
    window: int  # samples
    hop: int  # samples
    bins: int
    floor: float  # lower bound of a power, before the logarithm
    normalise: str  # none | mean | mean_variance | waveform


NORMALISE = {
    "none": "",
    "waveform": "",
    "mean": "mels = mels - mels.mean(0)\n",
    "mean_variance": "mels = mels - mels.mean(0)\nmels = mels / mels.square().mean(0).sqrt().clamp(min=1e-3)\n",
}
WAVEFORM = "wave = wave - wave.mean()\nwave = wave / max((wave**2).mean() ** 0.5, 1e-5)\n"  # applied before the mels
CHARACTERS = """\
tokens = (folder / "tokens.txt").read_text(encoding="utf-8").split("\\n")
print("".join(tokens[i] for i in best if i != 0).replace("<space>", " "))
"""
SUBWORDS = """\
import sentencepiece  # noqa: E402

pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokeniser.model"))
print(pieces.decode([i for i in best if i != 0]))
"""
FRAMES = """\
    log_probs = model["ctc_head"](hidden).log_softmax(-1)[0]
best = log_probs.argmax(-1).unique_consecutive().tolist()
"""
STATES = """\
    tokens = %(search)s(
        %(decoder)s,
        bos_index=hparams["bos"],
        eos_index=hparams["eos"],
        min_decode_ratio=0.0,
        max_decode_ratio=1.0,
    )(hidden, torch.ones(1))[0]
best = [token for token in tokens[0] if token != hparams["bos"]]
"""
SEQ2SEQ = "speechbrain.decoders.seq2seq"
SEARCHES = {  # the decoder's greedy search in SpeechBrain, and the parts that it takes
    Conformer: ("S2STransformerGreedySearcher", 'modules=[model["transformer"], model["attention_head"]]'),
    CRDNN: (
        "S2SRNNGreedySearcher",
        'embedding=model["embedding"], decoder=model["decoder"], linear=model["attention_head"]',
    ),
}
EXAMPLE = '''\
"""python example.py speech.wav: greedy search with this folder's model.

Needs torch, torchaudio, speechbrain and soundfile.
"""

import sys
from pathlib import Path

import soundfile
import torch
from hyperpyyaml import load_hyperpyyaml
%(imports)s
folder = Path(__file__).resolve().parent
with (folder / "hyperparams.yaml").open(encoding="utf-8") as file:
    hparams = load_hyperpyyaml(file)
model = hparams["model"].eval()
model.load_state_dict(torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
wave, rate = soundfile.read(sys.argv[1], dtype="float32")
assert rate == hparams["sample_rate"] and wave.ndim == 1, f"resample to {hparams['sample_rate']} Hz, one channel"
%(waveform)smels = hparams["mel_spectrogram"](torch.from_numpy(wave)).clamp(min=hparams["floor"]).log().T
%(normalise)swith torch.inference_mode():
    hidden = %(encode)s
%(best)s%(text)s'''


def export(
    model: Conformer | CRDNN, tokeniser: Saves, features: FeatureDescription, folder: Path, reads: str = "frames"
) -> None:
    """Write the folder; each file is complete or missing. ValueError names missing or unknown entries of `features`.

    `reads`: what the example searches, frames (of CTC) | states (of the decoder).
    """
    missing = [name for name in FeatureDescription.__annotations__ if name not in features]
    if missing:
        raise ValueError(f"export: the features lack {', '.join(missing)}")
    if features["normalise"] not in NORMALISE:
        raise ValueError(
            f"export: features.normalise={features['normalise']!r} is unknown: choose one of {', '.join(NORMALISE)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    tokeniser.save(folder)
    text = CHARACTERS if (folder / "tokens.txt").exists() else SUBWORDS
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    save_tensors(state, folder / "model.pt")
    best, imports = FRAMES, ""
    if reads == "states":
        search, decoder = SEARCHES[type(model)]
        best, imports = STATES % {"search": search, "decoder": decoder}, f"from {SEQ2SEQ} import {search}\n"
    words = {"normalise": NORMALISE[features["normalise"]], "encode": model.example, "text": text}
    words["waveform"] = WAVEFORM if features["normalise"] == "waveform" else ""
    example = EXAMPLE % (words | {"best": best, "imports": imports})
    for name, content in (("hyperparams.yaml", hyperparams(model, features)), ("example.py", example)):
        write_whole(folder / name, content)


def write_features(features: FeatureDescription, folder: Path) -> None:
    """Write features.yaml, a HyperPyYAML: how the features of a user's model are computed."""
    wave, mels = (WAVEFORM if features["normalise"] == "waveform" else ""), NORMALISE[features["normalise"]]
    steps = f"{wave}mels = mel_spectrogram(wave).clamp(min=floor).log().T\n{mels}"
    lines = [
        "# Written by fedray; read with hyperpyyaml.load_hyperpyyaml. From `wave` [samples] to `mels` [frames, bins]:",
        *(f"#     {line}" for line in steps.splitlines()),
        *_sound(features),
        f"normalise: {features['normalise']}",
        *_mel_spectrogram(features),
    ]
    content = "\n".join(lines) + "\n"
    write_whole(folder / "features.yaml", content)


def _sound(features: FeatureDescription) -> list[str]:
    return [f"sample_rate: {features['sample_rate']}", f"floor: {features['floor']!r}"]


def _mel_spectrogram(features: FeatureDescription) -> list[str]:
    padding = (features["fft"] - features["window"]) // 2  # makes the first window start at the first sample
    mel = {
        "sample_rate": features["sample_rate"],
        "n_fft": features["fft"],
        "win_length": features["window"],
        "hop_length": features["hop"],
        "pad": padding,
        "n_mels": features["bins"],
        "center": False,
    }
    return _new("mel_spectrogram", "torchaudio.transforms.MelSpectrogram", mel)


def hyperparams(model: Conformer | CRDNN, features: FeatureDescription) -> str:
    """The text of hyperparams.yaml."""
    classes = {name: type(part) for name, part in model.named_children()}
    arguments = model.parts()
    lines = ["# Written by fedray; read with hyperpyyaml.load_hyperpyyaml. Token 0 is the CTC blank."]
    lines += _sound(features)
    if model.attention_head is not None:
        lines += [f"bos: {model.bos}", f"eos: {model.eos}"]
    lines += _mel_spectrogram(features)
    for name, kind in classes.items():
        lines += _new(name, f"{kind.__module__}.{kind.__qualname__}", arguments[name])
    lines += ["model: !new:torch.nn.ModuleDict"]
    lines += [f"  {'-' if at == 0 else ' '} {name}: !ref <{name}>" for at, name in enumerate(classes)]
    return "\n".join(lines) + "\n"


def _new(name: str, kind: str, arguments: Mapping[str, object]) -> list[str]:
    """Lines that make an object of the class `kind`."""
    return [f"{name}: !new:{kind}", *(f"  {key}: {_yaml(value)}" for key, value in arguments.items())]


def _yaml(value: object) -> str:
    if isinstance(value, type):
        return f"!name:{value.__module__}.{value.__qualname__}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
