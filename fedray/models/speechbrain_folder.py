"""A recogniser with CTC from a folder of SpeechBrain's, as it is downloaded: hyperparams.yaml for `EncoderASR`.

The folder's `modules.encoder` turns waveforms into the outputs of CTC; its `tokenizer` is a SentencePiece model or a
CTCTextEncoder; its `pretrainer` names the files of weights. hyperparams.yaml is HyperPyYAML, which builds any object of
any package that it names: it can execute anything, so `model.trusted` must say that somebody has read it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from fedray.models.checkpoint import located

HYPERPARAMS = "hyperparams.yaml"
SOURCE = "pretrained_path"  # the key of hyperparams.yaml that says where the files of weights are


@dataclass(frozen=True)
class SpeechBrainSettings:
    """Which folder, and that it may be executed."""

    folder: str | None = None  # folder with hyperparams.yaml and its files of weights (.ckpt)
    # true: you have read hyperparams.yaml, which can execute anything on every machine of the run
    trusted: bool = False
    init: str | None = None  # a file with initial weights, a state dict, instead of the folder's weights


class SpeechBrainCTC(nn.Module):
    """SpeechBrain's `EncoderASR` as a recogniser: waveforms in, log-probabilities of CTC out. Token 0 is the blank."""

    Settings: ClassVar[type] = SpeechBrainSettings
    features_kind: ClassVar[str] = "waveform"
    evaluation_batch: ClassVar[int] = 8
    built_elsewhere: ClassVar[bool] = True  # whether it reads padding is not known
    order: Tensor  # int64 [vocabulary]
    pretrainer: Any

    def __init__(
        self, settings: SpeechBrainSettings, bins: int, vocabulary: int, places: Sequence[int] | None = None
    ) -> None:
        """`places`: the place of each token in the outputs, the blank first; None: as they are."""
        super().__init__()
        self.settings, self.bins = settings, bins
        hparams = read(settings)
        modules = hparams.get("modules")
        if not isinstance(modules, dict) or "encoder" not in modules:
            path = checked_folder(settings) / HYPERPARAMS
            raise ValueError(f"{path}: has no modules.encoder, which SpeechBrain's EncoderASR needs")
        self.parts = nn.ModuleDict({name: part for name, part in modules.items() if isinstance(part, nn.Module)})
        # Not registered: their parameters are those of `parts`.
        self.__dict__["pretrainer"] = hparams.get("pretrainer")
        # The mean and variance of a corpus are no parameters: every model has the folder's, and training keeps them.
        if any(map(_is_constant, getattr(self.pretrainer, "loadables", {}).values())):
            load(self.pretrainer, checked_folder(settings), _is_constant)
        order = torch.arange(vocabulary) if places is None else torch.tensor(list(places))
        self.register_buffer("order", order, persistent=False)

    @staticmethod
    def derived(settings: SpeechBrainSettings, task: str, algorithm: str) -> dict[str, Any]:
        """Key of a configuration -> the value that fits the folder, for keys that the user does not set."""
        found: dict[str, Any] = {
            "features.kind": "waveform",
            "task.augment": {"time_masks": 0, "frequency_masks": 0},
            "algorithm.pretrain": {"steps": 0},
        }
        return found if settings.folder is None else found | {"task.tokens": "pretrained"}

    def train(self, mode: bool = True) -> Self:
        """As any module, but for `InputNormalization`, which would go on to learn a mean and variance."""
        from speechbrain.processing.features import InputNormalization

        super().train(mode)
        for part in self.modules():
            if isinstance(part, InputNormalization):
                part.eval()
        return self

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Waveforms [B, T, 1] and lengths [B] in samples -> outputs [B, T', tokens] and their lengths [B]."""
        relative = lengths / features.shape[1]
        outputs: Tensor = self.parts["encoder"](features[..., 0], relative.to(features.dtype))
        return outputs, (relative * outputs.shape[1]).round().long().clamp(min=1)

    def ctc(self, hidden: Tensor) -> Tensor:
        """Log-probabilities [B, T', vocabulary] of each frame."""
        return hidden[..., self.order].log_softmax(-1)

    def load_pretrained(self) -> None:
        """Load the folder's weights. ValueError: it names none, or a file is missing."""
        load(self.pretrainer, checked_folder(self.settings), lambda part: isinstance(part, nn.Module))

    def save_pretrained(self, folder: Path) -> None:
        """Write a folder for `EncoderASR.from_hparams`, with the files of the first folder and these weights."""
        mine = checked_folder(self.settings)
        for path in mine.iterdir():
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
        for name, part in self.pretrainer.loadables.items():
            if isinstance(part, nn.Module) and not _is_constant(part):
                torch.save({key: value.clone() for key, value in part.state_dict().items()}, folder / f"{name}.ckpt")


def checked_folder(settings: SpeechBrainSettings) -> Path:
    """The folder. ValueError: it is not set, has no hyperparams.yaml, or is not trusted."""
    if settings.folder is None:
        raise ValueError(f"model.folder is missing: set it to a folder of SpeechBrain's with {HYPERPARAMS}")
    folder = located(settings.folder)
    if not (folder / HYPERPARAMS).is_file():
        raise ValueError(f"model.folder {folder} has no {HYPERPARAMS}: set it to a folder of SpeechBrain's")
    if not settings.trusted:
        raise ValueError(
            f"{folder / HYPERPARAMS} is HyperPyYAML, which can execute anything on every machine of the run: read it, "
            "then set model.trusted=true"
        )
    return folder


def read(settings: SpeechBrainSettings) -> dict[str, Any]:
    """Build what hyperparams.yaml describes, with random weights from torch's global generator.

    ValueError: the folder cannot be used. Other errors are those of the objects in the file.
    """
    from hyperpyyaml import load_hyperpyyaml

    folder = checked_folder(settings)
    text = (folder / HYPERPARAMS).read_text(encoding="utf-8")
    own = {SOURCE: str(folder)} if any(line.startswith(f"{SOURCE}:") for line in text.splitlines()) else {}
    found: dict[str, Any] = load_hyperpyyaml(text, own)
    return found


def tokens_of(settings: SpeechBrainSettings) -> tuple[bytes | list[str], int]:
    """The folder's tokens: the bytes of a SentencePiece model, or characters in the order of the outputs; the blank.

    ValueError: the tokeniser is of another kind.
    """
    from speechbrain.dataio.encoder import CTCTextEncoder

    hparams, folder = read(settings), checked_folder(settings)
    load(hparams.get("pretrainer"), folder, lambda part: not isinstance(part, nn.Module))
    tokeniser: Any = hparams.get("tokenizer")
    blank = int(hparams.get("blank_index", 0))
    if isinstance(tokeniser, CTCTextEncoder):
        tokeniser.ignore_len()
        return [str(tokeniser.ind2lab[place]) for place in range(len(tokeniser.ind2lab))], blank
    if hasattr(tokeniser, "serialized_model_proto"):
        return bytes(tokeniser.serialized_model_proto()), blank
    kind = type(tokeniser).__name__
    raise ValueError(
        f"{folder / HYPERPARAMS}: its tokenizer is a {kind}, not a SentencePieceProcessor or a CTCTextEncoder"
    )


def _is_constant(part: object) -> bool:
    return isinstance(part, nn.Module) and not any(True for _ in part.parameters())


def load(pretrainer: Any, folder: Path, chosen: Callable[[object], bool]) -> None:
    """Load the files that a pretrainer names, for its chosen objects.

    ValueError: there is no pretrainer, or a file is missing.
    """
    from speechbrain.utils.parameter_transfer import Pretrainer

    if not isinstance(pretrainer, Pretrainer):
        raise ValueError(f"{folder / HYPERPARAMS}: has no pretrainer, which says where the weights are")
    wanted = {name: part for name, part in pretrainer.loadables.items() if chosen(part)}
    paths = {name: str(pretrainer.paths.get(name, folder / f"{name}.ckpt")) for name in wanted}
    missing = [path for path in paths.values() if not Path(path).is_file()]
    if missing:
        raise ValueError(f"{folder / HYPERPARAMS}: its pretrainer names {missing[0]}, which is not there")
    mine = Pretrainer(loadables=wanted, paths=paths, custom_hooks=pretrainer.custom_hooks)
    mine.collect_files(default_source=str(folder))
    mine.load_collected()
