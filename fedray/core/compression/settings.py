"""The sections `upload` and `download` of a configuration: the kinds of codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fedray.core.compression.codes import Code, Float32, Half, Int4, Int8
from fedray.core.compression.sparse import TopK
from fedray.core.ranges import Ranged, SomeShare, one_of

VALUES: dict[str, Code] = {"float32": Float32(), "half": Half(), "int8": Int8()}  # for the numbers that top-k keeps


class Upload(Ranged, ABC):
    """How clients encode what they send.

    With `feedback` a client keeps what its update lost and adds it to its next update (error feedback: Seide, Fu,
    Droppo, Li, Yu, Interspeech 2014; Karimireddy, Rebjock, Stich, Jaggi, ICML 2019). Numbers are then rounded to
    the nearest step. Without feedback they are rounded up or down at random, so that the mean over clients has no bias;
    half precision and the numbers that `topk` keeps are always rounded to the nearest.
    """

    feedback: bool = False

    @property
    @abstractmethod
    def code(self) -> Code:
        """The code of an update's delta, and of each of its vectors."""


@dataclass(frozen=True)
class NoUpload(Upload):
    """Updates travel as they are: 4 bytes per number."""

    code: ClassVar[Code] = Float32()


@dataclass(frozen=True)
class HalfUpload(Upload):
    """2 bytes per number: half precision."""

    feedback: bool = True  # a client keeps what the encoding of its update lost, and adds it to its next update
    code: ClassVar[Code] = Half()


@dataclass(frozen=True)
class Int8Upload(Upload):
    """1 byte per number, and 4 bytes per block of at most 1,024 numbers of a tensor."""

    feedback: bool = True  # a client keeps what the encoding of its update lost, and adds it to its next update
    code: ClassVar[Code] = Int8()


@dataclass(frozen=True)
class Int4Upload(Upload):
    """Half a byte per number, and 4 bytes per block of at most 256 numbers of a tensor."""

    feedback: bool = True  # a client keeps what the encoding of its update lost, and adds it to its next update
    code: ClassVar[Code] = Int4()


@dataclass(frozen=True)
class TopKUpload(Upload):
    """The largest numbers of an update and their positions. Without feedback, the others are lost."""

    share: SomeShare = 0.05  # share of an update's numbers that travel: those largest in absolute value
    values: str = one_of(VALUES)  # the code of the numbers: float32 | half | int8
    feedback: bool = True  # a client keeps what the encoding of its update lost, and adds it to its next update

    @property
    def code(self) -> Code:
        return TopK(self.share, VALUES[self.values])


UPLOADS: dict[str, type[Upload]] = {
    "none": NoUpload,
    "half": HalfUpload,
    "int8": Int8Upload,
    "int4": Int4Upload,
    "topk": TopKUpload,
}
# The server encodes each model once, rounded to the nearest: it keeps the exact model, so errors do not add up.
DOWNLOADS: dict[str, type[Code]] = {"none": Float32, "half": Half, "int8": Int8, "int4": Int4}
