"""The models that tasks train. A class names the dataclass of its settings in `Settings`."""

from __future__ import annotations

from torch import nn

from fedray.models.audio_cnn import AudioCNN
from fedray.models.conformer import Conformer
from fedray.models.crdnn import CRDNN
from fedray.models.crnn import CRNN
from fedray.models.encoder import Encoder, EncoderClassifier
from fedray.models.speechbrain_folder import SpeechBrainCTC
from fedray.models.whisper import Whisper

MODELS: dict[str, type[nn.Module]] = {
    "audio_cnn": AudioCNN,
    "conformer": Conformer,
    "crdnn": CRDNN,
    "crnn": CRNN,
    "encoder": Encoder,
    "speechbrain": SpeechBrainCTC,
    "whisper": Whisper,
}
# What classification trains in place of a recogniser.
CLASSIFIERS: dict[type[nn.Module], type[nn.Module]] = {Encoder: EncoderClassifier, Whisper: EncoderClassifier}
