"""The corpora that fedray reads or makes: one file each. To add one, write the class and name it here."""

from __future__ import annotations

from fedray.data.corpora.ambient import Ambient
from fedray.data.corpora.common_voice import CommonVoice
from fedray.data.corpora.crema_d import CremaD
from fedray.data.corpora.embedded import Embedded
from fedray.data.corpora.fsd50k import Fsd50k
from fedray.data.corpora.fsdd import ConnectedDigits, Fsdd
from fedray.data.corpora.iemocap import Iemocap
from fedray.data.corpora.kaldi import Kaldi
from fedray.data.corpora.librispeech import LibriSpeech
from fedray.data.corpora.nemo import Nemo
from fedray.data.corpora.speech_commands import SpeechCommands
from fedray.data.corpora.speechbrain import SpeechBrain
from fedray.data.corpora.tsv import Tsv
from fedray.data.corpora.urbansound8k import UrbanSound8K
from fedray.data.corpora.voxforge import VoxForge

CORPORA: dict[str, type] = {
    "embedded": Embedded,
    "librispeech": LibriSpeech,
    "common_voice": CommonVoice,
    "fsdd": Fsdd,
    "connected_digits": ConnectedDigits,
    "speech_commands": SpeechCommands,
    "urbansound8k": UrbanSound8K,
    "crema_d": CremaD,
    "iemocap": Iemocap,
    "voxforge": VoxForge,
    "ambient": Ambient,
    "fsd50k": Fsd50k,
    "speechbrain": SpeechBrain,
    "nemo": Nemo,
    "kaldi": Kaldi,
    "tsv": Tsv,
}
