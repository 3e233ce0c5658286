"""Audio files to waveforms: any format of libsndfile, segments of long files, resampling, and errors that say what is wrong with a file."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import soundfile
import torch
from torchaudio.transforms import Resample

# Manifests round their seconds and lossy formats pad: a segment may end this much before the manifest says so.
TOLERANCE = 0.1  # seconds


class AudioError(ValueError):
    """A file, or a segment of one, that cannot be used. `reason` says why; the message names the file as well."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(path, reason)  # both in `args`, so that it pickles
        self.path, self.reason = str(path), reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def read(path: str | Path, sample_rate: int, offset: float = 0.0, seconds: float | None = None) -> torch.Tensor:
    """The waveform [samples], float32 in -1..1, channels averaged, at `sample_rate` Hz.

    `offset` and `seconds` choose a segment; `seconds` None, NaN or 0 means to the end of the file.
    Raises AudioError for what is missing, empty, truncated, not audio, or not finite.
    """
    with _open(path) as sound:
        start = round(offset * sound.samplerate)
        to_end = seconds is None or math.isnan(seconds) or seconds <= 0
        wanted = max(0, sound.frames - start) if to_end else round(seconds * sound.samplerate)
        if start >= sound.frames > 0:
            raise AudioError(path, f"truncated: the segment starts at {offset:.2f} s, the file ends at {_length(sound)}")
        try:
            sound.seek(start)
            samples = sound.read(wanted, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise AudioError(path, f"truncated or damaged: {error.error_string}") from error
        if len(samples) == 0:
            raise AudioError(path, "holds no samples")
        if len(samples) < wanted - TOLERANCE * sound.samplerate:
            there = (start + len(samples)) / sound.samplerate
            raise AudioError(path, f"truncated: {(start + wanted) / sound.samplerate:.2f} s are needed, it ends at {there:.2f} s")
        if start + len(samples) >= sound.frames:
            _check_wav_is_whole(path)
        waveform = torch.from_numpy(samples.mean(axis=1) if samples.shape[1] > 1 else samples[:, 0])
        if not torch.isfinite(waveform).all():
            raise AudioError(path, "holds samples that are not finite (NaN or Inf)")
        return _resampler(sound.samplerate, sample_rate)(waveform) if sound.samplerate != sample_rate else waveform


def duration(path: str | Path) -> float:
    """Seconds of a file by its header. Raises AudioError."""
    with _open(path) as sound:
        return sound.frames / sound.samplerate


def check(path: str | Path, end: float) -> None:
    """Raises AudioError when the header says that the file cannot be read as far as `end` seconds. Damage further in stays unseen."""
    with _open(path) as sound:
        if sound.frames == 0:
            raise AudioError(path, "holds no samples")
        if sound.frames / sound.samplerate < end - TOLERANCE:
            raise AudioError(path, f"truncated: {end:.2f} s are needed, it ends at {_length(sound)}")
    _check_wav_is_whole(path)


def _open(path: str | Path) -> soundfile.SoundFile:
    try:
        return soundfile.SoundFile(path)
    except soundfile.LibsndfileError as error:
        raise AudioError(path, _why_not_audio(Path(path), error.error_string)) from error


def _why_not_audio(path: Path, message: str) -> str:
    if not path.exists():
        return "missing"
    if path.is_dir():
        return "a folder, not a file"
    if path.stat().st_size == 0:
        return "an empty file"
    if is_lfs_stub(path):
        return "a Git LFS stub, not the audio (fetch it with `git lfs pull`)"
    return f"cannot be read as audio: {message}"


def is_lfs_stub(path: str | Path) -> bool:
    """Whether a file that exists is what Git leaves in its place when it was cloned without Git LFS: a few lines that name the real one."""
    with open(path, "rb") as file:
        return file.read(23) == b"version https://git-lfs"


def _check_wav_is_whole(path: str | Path) -> None:
    """libsndfile quietly shortens a truncated wav, so ask its RIFF header (pipes leave 0 or 0xFFFFFFFF there, which say nothing)."""
    with open(path, "rb") as file:
        head = file.read(12)
        size = file.seek(0, 2)
    promised = int.from_bytes(head[4:8], "little") + 8
    said = head[:4] == b"RIFF" and head[8:] == b"WAVE" and promised < 0xFFFFFF00
    # A few bytes are a careless header (no padding byte), not lost speech.
    if said and promised - size > max(64, promised // 100):
        raise AudioError(path, f"truncated: {size:,} of {promised:,} bytes are there")


@functools.lru_cache(maxsize=8)
def _resampler(source: int, target: int) -> Resample:
    return Resample(source, target)  # kept, because its kernel costs more than its use


def _length(sound: soundfile.SoundFile) -> str:
    return f"{sound.frames / sound.samplerate:.2f} s"
