"""A pre-trained speech encoder of transformers, with CTC for recognition or a pooled head for classification.

The heads are those of transformers' `ForCTC` and `ForSequenceClassification`, so a trained model is one of theirs
(`fedray.models.export_encoder`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedray.models.encoder_files import load
from fedray.models.encoder_states import EncoderSettings, PretrainedEncoder, checkpoint_of, window_of
from fedray.models.padding import padding
from fedray.models.whisper import OVERHANG, WhisperSettings

NO_MASKS = {"time_masks": 0, "frequency_masks": 0}  # encoders have masks of their own (`model.time_mask`)


class EncoderClassifier(PretrainedEncoder):
    """A classifier: a projection of the hidden states, their mean over the utterance's frames, and a linear layer.

    Over all frames of the window for Whisper's encoder, as in transformers.
    """

    head: ClassVar[str] = "classifier"

    def __init__(
        self, settings: EncoderSettings | WhisperSettings, bins: int, classes: int, labels: Sequence[str] | None = None
    ) -> None:
        """`labels`: the names of the classes; a checkpoint's last layer is loaded if it has the same."""
        super().__init__(settings, bins)
        self.labels = labels
        self.projector = nn.Linear(self.width, self.encoder.config.classifier_proj_size)
        self.classifier = nn.Linear(self.projector.out_features, classes)
        for layer in (self.projector, self.classifier):
            begin(layer, self.encoder.config)
        self.freeze()

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Features [B, T, bins] and lengths [B] in frames -> logits [B, classes]."""
        hidden, lengths = self.states(features, lengths)
        if self.whisper:
            lengths = torch.full_like(lengths, hidden.shape[1])
        inside = ~padding(lengths, hidden.shape[1])[..., None]
        pooled = self.projector(hidden[..., : self.width]).where(inside, 0.0).sum(1) / lengths[:, None]
        logits: Tensor = self.classifier(pooled)
        return logits

    def load_pretrained(self) -> None:
        """Load the encoder; the head too, if the checkpoint has one for these classes."""
        theirs = [label for _, label in sorted(self.checkpoint.config.id2label.items())]
        same = self.labels is not None and list(self.labels) == theirs
        parts = {"projector": self.projector} | ({"classifier": self.classifier} if same else {})
        load(self.encoder, self.checkpoint, "classification", parts)


class Encoder(PretrainedEncoder):
    """A recogniser with CTC. Token 0 is the blank."""

    order: Tensor  # int64 [vocabulary]

    def __init__(
        self, settings: EncoderSettings, bins: int, vocabulary: int, places: Sequence[int] | None = None
    ) -> None:
        """`places`: the place of each token in the checkpoint's outputs, the blank first; None: other tokens."""
        super().__init__(settings, bins)
        self.places = places
        self.dropout = nn.Dropout(getattr(self.encoder.config, "final_dropout", 0.0))
        self.ctc_head = nn.Linear(self.width, vocabulary)
        begin(self.ctc_head, self.encoder.config)
        order = torch.arange(vocabulary) if places is None else torch.tensor(list(places))
        self.register_buffer("order", order, persistent=False)
        self.freeze()

    @staticmethod
    def features_kind(settings: EncoderSettings) -> str | None:
        """The features.kind that the checkpoint needs; None: no checkpoint is named yet."""
        return None if settings.folder is None else checkpoint_of(settings).family.features

    @staticmethod
    def derived(settings: EncoderSettings, task: str, algorithm: str) -> dict[str, Any]:
        """Key of a configuration -> the value that fits the checkpoint, for keys that the user does not set."""
        found: dict[str, Any] = {"task.augment": NO_MASKS, "algorithm.pretrain": {"steps": 0}}
        if settings.folder is None:
            return found | {"features.kind": "waveform"}
        checkpoint = checkpoint_of(settings)
        found |= {f"features.{key}": value for key, value in checkpoint.features.items()}
        if task == "recognition" and checkpoint.vocabulary is not None:
            found["task.tokens"] = "pretrained"
        if algorithm == "fedlora":
            found["algorithm.lora.targets"] = list(checkpoint.family.adapted)
            found["algorithm.lora.whole"] = ["^(ctc_head|projector|classifier|layer_weights)"]
        if algorithm == "fedmlac":
            found["algorithm.sizes"] = ["all"]
        return found

    @staticmethod
    def output_lengths(settings: EncoderSettings, lengths: Tensor) -> Tensor:
        """Encoder frames [B] of utterances with these numbers [B] of feature frames."""
        found = checkpoint_of(settings)
        if found.family.features == "whisper":
            return ((lengths + 1) // 2).clamp(max=window_of(settings, found) // 2)
        return found.levels(lengths)["hidden"]

    @staticmethod
    def limits(settings: EncoderSettings) -> tuple[int | None, int | None]:
        """The most frames of an utterance, and the most tokens of a text; None: no limit."""
        found = checkpoint_of(settings)
        return (window_of(settings, found) + OVERHANG if found.family.features == "whisper" else None), None

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, T, bins] and lengths [B] in frames -> hidden states [B, T', width] and their lengths [B]."""
        return self.states(features, lengths)

    def ctc(self, hidden: Tensor) -> Tensor:
        """Log-probabilities [B, T', vocabulary] of each frame."""
        logits: Tensor = self.ctc_head(self.dropout(hidden[..., : self.width]))
        return logits[..., self.order].log_softmax(-1)

    def frame_keys(self, hidden: Tensor) -> Tensor:
        """The keys of a memory of frames, of `encode`'s hidden states: those of the layer that `model.keys` names."""
        return hidden if self.settings.keys is None else hidden[..., self.width :]

    def load_pretrained(self) -> None:
        """Load the encoder; the CTC head too, if the tokens are the checkpoint's and it has one."""
        heads = {"lm_head": self.ctc_head} if self.places is not None else {}
        load(self.encoder, self.checkpoint, "ctc", heads)


def vocabulary(settings: EncoderSettings) -> Path:
    """The file of the checkpoint's CTC tokens. ValueError: it has none."""
    checkpoint = checkpoint_of(settings)
    if checkpoint.vocabulary is None:
        raise ValueError(
            f"task.tokens=pretrained: model.folder {checkpoint.folder} has no tokens of CTC (vocab.json): set "
            "task.tokens=characters"
        )
    return checkpoint.vocabulary


def begin(layer: nn.Linear, config: Any) -> None:
    """Draw the weights of a new head as transformers does."""
    nn.init.normal_(layer.weight, std=getattr(config, "initializer_range", getattr(config, "init_std", 0.02)))
    nn.init.zeros_(layer.bias)
