"""The corpora that fedray reads or makes: one file each. To add one, write the class and name it here."""

from __future__ import annotations

from fedray.data.corpora.formats.folders import Folders
from fedray.data.corpora.formats.huggingface import HuggingFace
from fedray.data.corpora.formats.kaldi import Kaldi
from fedray.data.corpora.formats.lhotse import Lhotse
from fedray.data.corpora.formats.nemo import Nemo
from fedray.data.corpora.formats.speechbrain import SpeechBrain
from fedray.data.corpora.formats.tsv import Tsv
from fedray.data.corpora.official.ambient import Ambient
from fedray.data.corpora.official.common_voice import CommonVoice
from fedray.data.corpora.official.connected_digits import ConnectedDigits
from fedray.data.corpora.official.covost2 import CoVoST2
from fedray.data.corpora.official.crema_d import CremaD
from fedray.data.corpora.official.fsd50k import Fsd50k
from fedray.data.corpora.official.fsdd import Fsdd
from fedray.data.corpora.official.gigaspeech import GigaSpeech
from fedray.data.corpora.official.iemocap import Iemocap
from fedray.data.corpora.official.librispeech import LibriSpeech
from fedray.data.corpora.official.mustc import MustC
from fedray.data.corpora.official.speech_commands import SpeechCommands
from fedray.data.corpora.official.urbansound8k import UrbanSound8K
from fedray.data.corpora.official.voxforge import VoxForge
from fedray.data.corpora.synthesis.embedded import Embedded

CORPORA: dict[str, type] = {
    "embedded": Embedded,
    "librispeech": LibriSpeech,
    "common_voice": CommonVoice,
    "covost2": CoVoST2,
    "mustc": MustC,
    "gigaspeech": GigaSpeech,
    "fsdd": Fsdd,
    "connected_digits": ConnectedDigits,
    "speech_commands": SpeechCommands,
    "urbansound8k": UrbanSound8K,
    "crema_d": CremaD,
    "iemocap": Iemocap,
    "voxforge": VoxForge,
    "ambient": Ambient,
    "fsd50k": Fsd50k,
    "folders": Folders,
    "huggingface": HuggingFace,
    "speechbrain": SpeechBrain,
    "nemo": Nemo,
    "kaldi": Kaldi,
    "lhotse": Lhotse,
    "tsv": Tsv,
}
