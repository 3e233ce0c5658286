"""Features that were made elsewhere, read beside any manifest: one matrix [frames, bins] for each utterance.

| `features.path` | what it holds | needs |
|---|---|---|
| none | the manifest's paths name .npy files | |
| a folder | UTTERANCE.npy; an audio suffix of the utterance's id is left out | |
| .npz, .h5, .hdf5 | an array by the id of each utterance | h5py for HDF5 |
| .scp, .ark | Kaldi's tables | kaldi_native_io |
| .jsonl, .jsonl.gz | Lhotse's cuts with features, by the id of a cut or of its supervision | lhotse |
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from fedray.core.ranges import Count, Positive, Range, one_of
from fedray.data.features.audio import AudioError
from fedray.data.features.settings import FeatureSettings
from fedray.data.manifest import Manifest, Utterance

Matrix = npt.NDArray[Any]
INSTALL = 'needs {}: pip install "fedray[features]"'
DAMAGED = (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error)
AUDIO = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".sph")


@dataclass(frozen=True)
class PrecomputedSettings(FeatureSettings):
    """Features that were made elsewhere, in files of numpy, HDF5, Kaldi or Lhotse. No audio is read.

    A float64 or float32 value is rounded to float16, like all features.
    """

    reads_audio: ClassVar[bool] = False

    # A folder of UTTERANCE.npy, or a file: .npz | .h5 | .scp or .ark (Kaldi) | .jsonl.gz (Lhotse's cuts). null: the
    # manifest's paths name .npy files.
    path: str | None = None
    bins: Count = 40  # values of a frame
    hop_ms: Positive = 10.0  # distance between two frames
    normalise: str = one_of(("none", "speaker"))  # speaker: as in log-mels
    padding: float = 0.0  # value of padding: that of silence
    sample_rate: Annotated[int, Range(1000, 768_000)] = 16000  # Hz, at which the audio is shown and checked

    @property
    def silence(self) -> float:
        return self.padding

    @property
    def hop_seconds(self) -> float:
        return self.hop_ms / 1000

    def frames(self, seconds: float) -> int:
        return max(1, round(seconds / self.hop_seconds))

    def compute(self, waveform: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("precomputed features are read, not computed")

    def of(self, utterance: Utterance, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> torch.Tensor:
        name, place = utterance.utterance, self.path or utterance.path

        def unusable(why: str) -> AudioError:
            return AudioError(utterance.path, f"{place} {why}")

        try:
            found = self._read(utterance)
        except (KeyError, FileNotFoundError) as error:
            raise unusable(f"has no features of {name}") from error
        except DAMAGED as error:
            raise unusable(f"has features of {name} that cannot be read: {error}") from error
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiub":
            raise unusable(f"has features of {name} that are no array of real numbers")
        if found.ndim != 2 or found.shape[1] != self.bins or not len(found):
            raise unusable(f"has features of {name} of the shape {list(found.shape)}, not [frames, {self.bins}]")
        if not np.isfinite(found).all():
            raise unusable(f"has NaN or infinity in the features of {name}")
        return torch.from_numpy(found.astype(np.float64))  # also from types and byte orders that torch lacks

    def depends(self, manifest: Manifest) -> Any:
        if self.path is None:
            return None
        path = Path(self.path)
        if not path.is_dir():
            return [_stamp(one) for one in (path, *_archives(path))]
        files = (_file_in(path, name) for name in manifest.column("utterance"))
        return [_stamp(one) for one in files if one.is_file()]

    def _read(self, utterance: Utterance) -> Matrix:
        if self.path is None:
            return _array(Path(utterance.path))
        path = Path(self.path)
        if path.is_dir():
            return _array(_file_in(path, utterance.utterance))
        return _opened(self.path, path.stat().st_mtime_ns)[utterance.utterance]


def _array(path: Path) -> Matrix:
    found: Matrix = np.load(path, allow_pickle=False)
    return found


def _file_in(folder: Path, name: str) -> Path:
    """The file of an utterance in a folder of .npy files."""
    stem, suffix = os.path.splitext(name)
    return folder / f"{stem if suffix.lower() in AUDIO else name}.npy"


def _stamp(path: Path) -> list[Any]:
    status = path.stat()
    return [path.name, status.st_size, status.st_mtime_ns]


def _archives(path: Path) -> list[Path]:
    """The archives that a Kaldi script file, or a file of Lhotse's cuts, names."""
    if path.suffix not in (".scp", ".jsonl", ".gz"):
        return []
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
            named = {name for line in lines for name in (_entry if path.suffix == ".scp" else _stored)(line)}
    except DAMAGED:
        return []  # reading the features names what is wrong
    return [Path(one) for one in sorted(named) if Path(one).is_file()]


def _entry(line: str) -> list[str]:
    """The archive in a line of a Kaldi script file: `utterance file:position`."""
    fields = line.split(None, 1)
    return [fields[1].rsplit(":", 1)[0].strip()] if len(fields) > 1 else []


def _stored(line: str) -> list[str]:
    """The file of a cut's features: one for all cuts, or one of a folder."""
    cut = json.loads(line) if line.strip() else {}
    features = cut.get("features") if isinstance(cut, dict) else None
    if not isinstance(features, dict) or "storage_path" not in features:
        return []
    place = str(features["storage_path"])
    return [place, os.path.join(place, str(features.get("storage_key", "")))]


@functools.lru_cache(maxsize=4)
def _opened(path: str, changed: int) -> Mapping[str, Matrix]:
    """The matrices of a file by the id of their utterance, each read when it is asked for."""
    suffix = Path(path).suffix
    if suffix == ".npz":
        if not zipfile.is_zipfile(path):
            raise ValueError("is not a whole archive")
        archive: Mapping[str, Matrix] = np.load(path, allow_pickle=False)
        return archive
    if suffix in (".h5", ".hdf5"):
        return _Hdf5(path)
    if suffix in (".scp", ".ark"):
        return _Kaldi(path)
    if suffix in (".jsonl", ".gz"):
        return _Lhotse(path)
    raise ValueError(f"{path} is none of .npz, .h5, .scp, .ark and .jsonl.gz, and no folder")


class _Matrices(Mapping[str, Matrix]):
    """Matrices by name, which are not listed. Abstract."""

    def __iter__(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class _Hdf5(_Matrices):
    def __init__(self, path: str) -> None:
        try:
            import h5py
        except ImportError as error:
            raise ValueError(INSTALL.format("h5py")) from error
        self._file = h5py.File(path, "r")

    def __getitem__(self, name: str) -> Matrix:
        found = self._file[name]
        matrix: Matrix = found[()] if hasattr(found, "shape") else found  # a group has none
        return matrix


class _Kaldi(_Matrices):
    def __init__(self, path: str) -> None:
        try:
            import kaldi_native_io
        except ImportError as error:
            raise ValueError(INSTALL.format("kaldi_native_io")) from error
        self._reader = kaldi_native_io.RandomAccessFloatMatrixReader(f"{Path(path).suffix[1:]}:{path}")

    def __getitem__(self, name: str) -> Matrix:
        if name not in self._reader:
            raise KeyError(name)
        return np.array(self._reader[name])


class _Lhotse(_Matrices):
    def __init__(self, path: str) -> None:
        try:
            from lhotse import CutSet
        except ImportError as error:
            raise ValueError(INSTALL.format("lhotse")) from error
        self._cuts: dict[str, Any] = {}
        for cut in CutSet.from_file(path):
            for name in (cut.id, *(supervision.id for supervision in cut.supervisions)):
                self._cuts.setdefault(name, cut)

    def __getitem__(self, name: str) -> Matrix:
        cut = self._cuts[name]
        if not cut.has_features:
            raise KeyError(name)
        found: Matrix = cut.load_features()
        return found
