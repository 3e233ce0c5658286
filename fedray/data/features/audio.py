"""Read audio files in any format of libsndfile: segments, resampling, and errors that say what is wrong with a file.

A path may also name audio inside a table (`fedray.data.features.packed`).
"""

from __future__ import annotations

import functools
import io
import math
from dataclasses import dataclass
from pathlib import Path

import soundfile
import torch
from torchaudio.transforms import Resample

from fedray.core.texts import no_file
from fedray.data.features.packed import packed_bytes

# A segment may be this much shorter than the manifest says: manifests round seconds, and lossy formats pad.
TOLERANCE = 0.1  # seconds
LOUDEST = 2.0**31  # the largest sample of any format with integers; far larger ones overflow in features
SAMPLES_A_BYTE = 8192  # FLAC spends about 10 bytes on a block of 65,536 equal samples; no format is smaller
BLOCK = 2**16  # samples that are decoded at once
UNKNOWN = 2**63 - 1  # libsndfile's number of samples for a header that states none
FILTER_SIZE = 2**24  # coefficients of a resampling filter, 64 MB; 44,100 to 16,000 Hz needs 72,000


class AudioError(ValueError):
    """A file or segment that cannot be used. `reason` says why; the message names the file as well."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(path, reason)  # `args` needs both: pickle calls __init__ with them
        self.path, self.reason = str(path), reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def read(path: str | Path, sample_rate: int, offset: float = 0.0, seconds: float | None = None) -> torch.Tensor:
    """Read a waveform, float32 [samples] in -1..1, channels averaged, at `sample_rate` Hz.

    `offset` and `seconds` choose a segment; `seconds` None, NaN or 0 means to the end of the file.
    Raises AudioError when the file is missing, empty, truncated or not audio, holds NaN, infinity or samples above
    `LOUDEST`, or has a rate from which resampling would take gigabytes.
    """
    with _open(path) as sound:
        _check_header(path, sound, sample_rate)
        if sound.frames == 0:
            raise AudioError(path, "holds no samples")
        start = round(offset * sound.samplerate)
        to_end = seconds is None or math.isnan(seconds) or seconds <= 0
        if to_end:
            _check_known(path, sound)
        wanted = max(0, sound.frames - start) if to_end else round(seconds * sound.samplerate)
        if start >= sound.frames:
            raise AudioError(
                path, f"truncated: the segment starts at {offset:.2f} s, the file ends at {_length(sound)}"
            )
        try:
            sound.seek(start)
            samples = sound.read(wanted, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise AudioError(path, f"truncated or damaged: {error.error_string}") from error
        except MemoryError as error:
            raise AudioError(path, f"its {wanted:,} samples do not fit into memory: cut it into pieces") from error
        if len(samples) == 0:
            raise AudioError(path, "holds no samples")
        if len(samples) < wanted - TOLERANCE * sound.samplerate:
            needed, end = (start + wanted) / sound.samplerate, (start + len(samples)) / sound.samplerate
            raise AudioError(path, f"truncated: {needed:.2f} s are needed, the file ends at {end:.2f} s")
        if start + len(samples) >= sound.frames:
            _check_wav_is_whole(path)
        waveform = torch.from_numpy(samples.mean(axis=1) if samples.shape[1] > 1 else samples[:, 0])
        if not torch.isfinite(waveform).all():
            raise AudioError(path, "holds samples that are not finite (NaN or Inf)")
        if (loudest := float(waveform.abs().max())) > LOUDEST:
            raise AudioError(path, f"holds samples up to {loudest:.2g}, but full scale is 1: scale it to -1..1")
        return _resampler(sound.samplerate, sample_rate)(waveform) if sound.samplerate != sample_rate else waveform


@dataclass(frozen=True)
class Shape:
    """The contents of a file's header."""

    sample_rate: int  # Hz
    samples: int  # in each channel
    channels: int
    suffix: str  # of the format: wav, flac, mp3, ...


def shape(path: str | Path) -> Shape:
    """Read the header of a file. Raises AudioError."""
    with _open(path) as sound:
        _check_known(path, sound)
        return _shape(sound)


def _shape(sound: soundfile.SoundFile) -> Shape:
    return Shape(sound.samplerate, sound.frames, sound.channels, sound.format.lower())


def duration(path: str | Path) -> float:
    """Length of a file in seconds, read from its header. Raises AudioError."""
    with _open(path) as sound:
        _check_header(path, sound, sound.samplerate)
        _check_known(path, sound)
        return float(sound.frames / sound.samplerate)


def check(path: str | Path, end: float, sample_rate: int) -> Shape:
    """Check a file by its header, and return what that says. Damage after the header goes unnoticed.

    Raises AudioError when the file ends before `end` seconds, or cannot be resampled.
    """
    with _open(path) as sound:
        _check_header(path, sound, sample_rate)
        if sound.frames == 0:
            raise AudioError(path, "holds no samples")
        if sound.frames / sound.samplerate < end - TOLERANCE:
            raise AudioError(path, f"truncated: {end:.2f} s are needed, the file ends at {_length(sound)}")
        found = _shape(sound)
    _check_wav_is_whole(path)
    return found


@dataclass(frozen=True)
class Lengths:
    """The lengths of a file in seconds, side by side."""

    header: float | None  # what the header states; None: it states none
    decoded: float  # what decoding gives, to the end of the file
    shape: Shape  # `shape.samples` are the decoded ones
    problem: str | None  # why the file cannot be used: cut short, ...; None: it can


def measure(path: str | Path) -> Lengths:
    """Decode a file to its end, and compare with its header. Raises AudioError for a file that cannot be opened."""
    with _open(path) as sound:
        header = None if sound.frames == UNKNOWN else float(sound.frames / sound.samplerate)
        samples, problem = 0, None
        try:
            while count := len(sound.read(BLOCK, dtype="float32")):
                samples += count
        except soundfile.LibsndfileError as error:
            problem = f"truncated or damaged: {error.error_string}"
        shape = Shape(sound.samplerate, samples, sound.channels, sound.format.lower())
    return Lengths(header, samples / shape.sample_rate, shape, problem)


def _check_header(path: str | Path, sound: soundfile.SoundFile, sample_rate: int) -> None:
    """Raise AudioError for more samples than the file can hold, and for a rate that cannot be resampled."""
    content = _packed(path)
    size = Path(path).stat().st_size if content is None else len(content)
    if UNKNOWN > sound.frames > SAMPLES_A_BYTE * size:
        raise AudioError(path, f"its header promises {sound.frames:,} samples, which its {size:,} bytes cannot hold")
    divisor = math.gcd(sound.samplerate, sample_rate)
    if (sound.samplerate // divisor) * (sample_rate // divisor) > FILTER_SIZE:
        raise AudioError(
            path,
            f"its {sound.samplerate:,} Hz cannot be resampled to {sample_rate:,} Hz: the filter would take gigabytes. "
            f"Correct its header, or convert it with `ffmpeg -i IN -ar {sample_rate} OUT`",
        )


def _check_known(path: str | Path, sound: soundfile.SoundFile) -> None:
    """Raise AudioError for a header without a length, such as that of a FLAC file written to a pipe."""
    if sound.frames == UNKNOWN:
        raise AudioError(path, "its header states no length: write the file again, or name a column of seconds")


def _open(path: str | Path) -> soundfile.SoundFile:
    content = _packed(path)
    if content is None and (found := no_file(path)) is not None:
        raise AudioError(path, found if found == "missing" else f"{found}, not a file")
    try:
        return soundfile.SoundFile(path if content is None else io.BytesIO(content))
    except soundfile.LibsndfileError as error:
        whole = f"its {len(content or b''):,} bytes cannot be read as audio: {error.error_string}"
        raise AudioError(path, _why_not_audio(Path(path), error.error_string) if content is None else whole) from error


def _packed(path: str | Path) -> bytes | None:
    """The bytes of audio inside a table; None for a file. Raises AudioError."""
    try:
        return packed_bytes(str(path))
    except FileNotFoundError as error:
        raise AudioError(path, "missing") from error
    except ValueError as error:
        raise AudioError(path, str(error)) from error


def _why_not_audio(path: Path, message: str) -> str:
    try:
        if path.stat().st_size == 0:
            return "an empty file"
        if is_lfs_stub(path):
            return "a Git LFS stub, not the audio (fetch it with `git lfs pull`)"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return f"cannot be read as audio: {message}"


def is_lfs_stub(path: str | Path) -> bool:
    """Whether the file is a Git LFS pointer: the few lines that a clone without Git LFS holds in place of the file."""
    with open(path, "rb") as file:
        return file.read(23) == b"version https://git-lfs"


def _check_wav_is_whole(path: str | Path) -> None:
    """Raise AudioError for a wav that is shorter than its RIFF header says: libsndfile reads it without an error.

    A wav written to a pipe has size 0 or 0xFFFFFFFF, which tells nothing.
    """
    content = _packed(path)
    with open(path, "rb") if content is None else io.BytesIO(content) as file:
        head = file.read(12)
        size = file.seek(0, 2)
    promised = int.from_bytes(head[4:8], "little") + 8
    has_size = head[:4] == b"RIFF" and head[8:] == b"WAVE" and promised < 0xFFFFFF00
    # A difference of a few bytes means a wrong header (no padding byte), not missing speech.
    if has_size and promised - size > max(64, promised // 100):
        raise AudioError(path, f"truncated: {size:,} of {promised:,} bytes are left")


@functools.lru_cache(maxsize=8)
def _resampler(source: int, target: int) -> Resample:
    return Resample(source, target)  # cached: computing its kernel costs more than applying it


def _length(sound: soundfile.SoundFile) -> str:
    return f"{sound.frames / sound.samplerate:.2f} s"
