"""Read audio files in any format of libsndfile: segments, resampling, and errors that say what is wrong with a file.

A path may also name audio inside a table (`fedray.data.features.packed`). Lengths are those that decoding gives:
`fedray.data.features.streams` finds them, and trusts no header where the file itself tells.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torchaudio.transforms import Resample

from fedray.data.features.recording import SAMPLES_A_BYTE, TOLERANCE, Recording
from fedray.data.features.recording import AudioError as AudioError

LOUDEST = 2.0**31  # the largest sample of any format with integers; far larger ones overflow in features
UNMEASURED = 2.0**-20  # seconds in a manifest that stand for "to the end", of a file that its reader cannot measure
FILTER_SIZE = 2**24  # coefficients of a resampling filter, 64 MB; 44,100 to 16,000 Hz needs 72,000


def read(path: str | Path, sample_rate: int, offset: float = 0.0, seconds: float | None = None) -> torch.Tensor:
    """Read a waveform, float32 [samples] in -1..1, channels averaged, at `sample_rate` Hz.

    `offset` and `seconds` choose a segment; `seconds` None, NaN, 0 or UNMEASURED means to the end of the file.
    Raises AudioError when the file is missing, empty, truncated or not audio, holds NaN, infinity or samples above
    `LOUDEST`, has a rate from which resampling would take gigabytes, or is longer than its header and `seconds` say.
    """
    with Recording(path) as sound:
        _check_header(sound, sample_rate)
        start = round(offset * sound.sample_rate)
        to_end = seconds is None or math.isnan(seconds) or seconds <= 0 or seconds == UNMEASURED
        wanted = max(0, sound.samples - start) if to_end else round(seconds * sound.sample_rate)
        _check_end(sound, start / sound.sample_rate, (start + wanted) / sound.sample_rate)
        samples = sound.decode(start, wanted)
        if len(samples) < min(wanted, sound.samples - start) - TOLERANCE * sound.sample_rate:
            needed, end = (start + wanted) / sound.sample_rate, (start + len(samples)) / sound.sample_rate
            raise AudioError(path, f"truncated or damaged: {needed:.2f} s are needed, {end:.2f} s can be decoded")
        if len(samples) == 0:
            raise AudioError(path, "holds no samples")
        waveform = torch.from_numpy(samples.mean(axis=1) if samples.shape[1] > 1 else samples[:, 0])
        if not torch.isfinite(waveform).all():
            raise AudioError(path, "holds samples that are not finite (NaN or Inf)")
        if (loudest := float(waveform.abs().max())) > LOUDEST:
            raise AudioError(path, f"holds samples up to {loudest:.2g}, but full scale is 1: scale it to -1..1")
        return _resampler(sound.sample_rate, sample_rate)(waveform) if sound.sample_rate != sample_rate else waveform


@dataclass(frozen=True)
class Shape:
    """What a file holds."""

    sample_rate: int  # Hz
    samples: int  # in each channel
    channels: int
    suffix: str  # of the format: wav, flac, mp3, ...


def shape(path: str | Path) -> Shape:
    """What a file holds, without decoding it. Raises AudioError, also for a file that was cut."""
    with Recording(path, thorough=False) as sound:
        if sound.problem:
            raise AudioError(path, sound.problem)
        return _shape(sound)


def _shape(sound: Recording) -> Shape:
    return Shape(sound.sample_rate, sound.samples, sound.channels, sound.suffix)


def duration(path: str | Path) -> float:
    """Length of a file in seconds, without decoding it. Raises AudioError, also for a file that was cut."""
    with Recording(path, thorough=False) as sound:
        _check_header(sound, sound.sample_rate)
        if sound.problem:
            raise AudioError(path, sound.problem)
        return sound.seconds


def check(path: str | Path, end: float, sample_rate: int) -> Shape:
    """Check a file by its structure, and return what it holds. Damage inside goes unnoticed.

    Raises AudioError when the file was cut, ends before `end` seconds, or cannot be resampled.
    """
    with Recording(path, thorough=False) as sound:
        _check_header(sound, sample_rate)
        _check_end(sound, 0.0, end)
        if sound.problem:
            raise AudioError(path, sound.problem)
        return _shape(sound)


@dataclass(frozen=True)
class Lengths:
    """The lengths of a file in seconds, side by side."""

    header: float | None  # what the header states, as libsndfile reads it; None: it states none
    decoded: float  # what decoding gives, to the end of the file
    shape: Shape  # `shape.samples` are the decoded ones
    problem: str | None  # why the file cannot be used: cut short, ...; None: it can


def measure(path: str | Path) -> Lengths:
    """Decode a file to its end, and compare with its header. Raises AudioError for a file that cannot be opened."""
    with Recording(path) as sound:
        problem = sound.problem
        try:
            samples = sound.count()
        except AudioError as error:
            samples, problem = 0, error.reason
        shape = Shape(sound.sample_rate, samples, sound.channels, sound.suffix)
        return Lengths(sound.stated, samples / shape.sample_rate, shape, problem)


def _check_header(sound: Recording, sample_rate: int) -> None:
    """Raise AudioError for more samples than the file can hold, and for a rate that cannot be resampled."""
    if sound.samples > SAMPLES_A_BYTE * sound.size:
        words = f"its header promises {sound.samples:,} samples, which its {sound.size:,} bytes cannot hold"
        raise AudioError(sound.path, words)
    divisor = math.gcd(sound.sample_rate, sample_rate)
    if (sound.sample_rate // divisor) * (sample_rate // divisor) > FILTER_SIZE:
        raise AudioError(
            sound.path,
            f"its {sound.sample_rate:,} Hz cannot be resampled to {sample_rate:,} Hz: the filter would take gigabytes. "
            f"Correct its header, or convert it with `ffmpeg -i IN -ar {sample_rate} OUT`",
        )


def _check_end(sound: Recording, start: float, end: float) -> None:
    """Raise AudioError unless the file holds the seconds from `start` to `end`."""
    if sound.samples == 0:
        raise AudioError(sound.path, sound.problem or "holds no samples")
    if start >= sound.seconds or end > sound.seconds + TOLERANCE:
        asked = f"the segment starts at {start:.2f} s" if start >= sound.seconds else f"{end:.2f} s are needed"
        ends = f"truncated: {asked}, the file ends at {sound.seconds:.2f} s"
        whole = "The file is complete by its own structure: correct the length in the manifest, or fetch the file again"
        raise AudioError(sound.path, sound.problem or f"{ends}. {whole}")
    if sound.problem and end >= sound.seconds - TOLERANCE:
        raise AudioError(sound.path, sound.problem)
    if not sound.whole and end < sound.seconds - TOLERANCE and abs((sound.stated or 0.0) - end) < TOLERANCE:
        raise AudioError(
            sound.path,
            f"its header states {sound.stated:.2f} s, and so does the manifest, but {sound.seconds:.2f} s are there. "
            f"Correct the length in the manifest; {sound.repair}",
        )


@functools.lru_cache(maxsize=8)
def _resampler(source: int, target: int) -> Resample:
    return Resample(source, target)  # cached: computing its kernel costs more than applying it
