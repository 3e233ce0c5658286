"""Open an audio file as the streams that it holds, and decode any part of them."""

from __future__ import annotations

import functools
import io
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import soundfile

from fedray.core.texts import is_lfs_stub, no_file
from fedray.data.features.packed import packed_bytes
from fedray.data.features.streams import streams_of
from fedray.data.features.streams.stream import Stream

SAMPLES_A_BYTE = 8192  # FLAC spends about 10 bytes on a block of 65,536 equal samples; no format is smaller
UNKNOWN = 2**63 - 1  # libsndfile's number of samples for a header that states none
# Bytes of a sample in the formats whose header libsndfile trusts.
TRUSTED = {("MAT4", "PCM_16"): 2, ("MAT4", "PCM_32"): 4, ("MAT4", "FLOAT"): 4, ("MAT4", "DOUBLE"): 8} | {
    ("SDS", kind): 127 / samples for kind, samples in (("PCM_S8", 60), ("PCM_16", 40), ("PCM_24", 30))
}
BLOCK = 2**18  # samples that are decoded at once
# A segment may be this much shorter than the manifest says: manifests round seconds, and lossy formats pad.
TOLERANCE = 0.1  # seconds
Samples = npt.NDArray[np.float32]  # [samples, channels]


class AudioError(ValueError):
    """A file or segment that cannot be used. `reason` says why; the message names the file as well."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(path, reason)  # `args` needs both: pickle calls __init__ with them
        self.path, self.reason = str(path), reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Recording:
    """An open audio file: the streams in it, one after the other.

    `samples` is the number in each channel that is there, whatever the header says. Raises AudioError when the file is
    missing, empty or not audio, or joined from files of different rates.
    """

    def __init__(self, path: str | Path, thorough: bool = True) -> None:
        """`thorough`: see `streams_of`."""
        self.path = path
        self._content = _packed(path)
        if self._content is None and (found := no_file(path)) is not None:
            raise AudioError(path, found if found == "missing" else f"{found}, not a file")
        self._close = ExitStack()
        try:
            self.size, self._streams = self._found(thorough)
            self.whole = len(self._streams) == 1 and self._streams[0].parts == ((0, self.size),)
            self._sounds = [self._close.enter_context(sound) for sound in self._open()]
            self._lengths = [
                stream.samples or (sound.frames if sound.frames != UNKNOWN else _counted(sound))
                for stream, sound in zip(self._streams, self._sounds, strict=True)
            ]
        except OSError as error:
            raise AudioError(path, f"cannot be read: {error.strerror}") from error
        first = self._sounds[0]
        self.sample_rate, self.channels, self.suffix = first.samplerate, first.channels, first.format.lower()
        self.samples = sum(self._lengths)
        if min(self._lengths) < 0:
            raise AudioError(path, "its header states sizes that cannot be: write it again")
        there = self.size // (TRUSTED.get((first.format, first.subtype), math.inf) * self.channels)
        if there and abs(there - self.samples) > TOLERANCE * self.sample_rate:
            words = f"its header counts {self.samples:,} samples, but it holds about {there:,.0f}"
            raise AudioError(path, f"{words}: write it again, or correct it with `sox IN OUT.wav`")
        rates = sorted({sound.samplerate for sound in self._sounds})
        if len(rates) > 1 or len({sound.channels for sound in self._sounds}) > 1:
            different = " and ".join(f"{rate:,}" for rate in rates) + " Hz" if len(rates) > 1 else "different channels"
            raise AudioError(path, f"joined from files of {different}: convert each, then join them with `sox`")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close.close()

    @property
    def seconds(self) -> float:
        """The length that is there."""
        return float(self.samples / self.sample_rate)

    @functools.cached_property
    def stated(self) -> float | None:
        """Seconds by the header, as libsndfile reads it; None: it states none."""
        if self.whole:
            return self.promised
        try:
            with _sound(self.path, self._content) as sound:
                return None if sound.frames == UNKNOWN else float(sound.frames / sound.samplerate)
        except AudioError:
            return self.promised

    @property
    def promised(self) -> float | None:
        """Seconds that the headers of all streams promise; None: one of them promises none."""
        total = 0.0
        for stream, length in zip(self._streams, self._lengths, strict=True):
            if stream.stated is None:
                return None
            total += stream.stated * length
        return float(total / self.sample_rate)

    @property
    def problem(self) -> str | None:
        """What is missing at the end, and what to do; None: nothing is known to be missing."""
        remedy = f"Fetch or write it again; if nothing is missing, {self.repair}"
        if self.promised is not None and self.promised > self.seconds + TOLERANCE:
            return f"truncated: its header promises {self.promised:.2f} s, {self.seconds:.2f} s are there. {remedy}"
        if problem := next((stream.problem for stream in self._streams if stream.problem), None):
            return f"{problem}: {self.seconds:.2f} s are there. {remedy}"
        return None

    @property
    def repair(self) -> str:
        """How to write the file again with a true header."""
        if len(self._streams) > 1:
            return "`sox A B OUT` joins files, `cat` does not"
        return f"`ffmpeg -i IN{' -c copy' if self.suffix in ('mp3', 'ogg') else ''} OUT` corrects the header"

    def decode(self, start: int, count: int) -> Samples:
        """`count` samples from `start` on, fewer at the end of the file. To be called once.

        Raises AudioError for damage.
        """
        parts: list[Samples] = []
        try:
            for sound, length in zip(self._sounds, self._lengths, strict=True):
                if (wanted := min(count, length - start)) > 0:
                    _seek(sound, start)
                    parts += _blocks(sound, wanted)
                    count, start = count - wanted, length
                start -= length
            return parts[0] if len(parts) == 1 else np.concatenate([np.zeros((0, self.channels), np.float32), *parts])
        except soundfile.LibsndfileError as error:
            raise self._damaged(error) from error
        except MemoryError as error:
            reason = f"its {self.samples:,} samples do not fit into memory: cut it into pieces"
            raise AudioError(self.path, reason) from error

    def count(self) -> int:
        """Decode everything, and count the samples. To be called once, instead of `decode`."""
        try:
            return sum(len(samples) for sound in self._sounds for samples in _blocks(sound, UNKNOWN))
        except soundfile.LibsndfileError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: soundfile.LibsndfileError) -> AudioError:
        return AudioError(self.path, self.problem or f"truncated or damaged: {error.error_string}")

    def _found(self, thorough: bool) -> tuple[int, list[Stream]]:
        """The size of the file, and its streams."""
        if self._content is not None:
            return len(self._content), streams_of(io.BytesIO(self._content), len(self._content), thorough)
        status = os.stat(self.path)
        return status.st_size, _streams(str(self.path), status.st_size, status.st_mtime_ns, thorough)

    def _open(self) -> Iterator[_Sound]:
        if self.whole:
            yield _sound(self.path, self._content)
            return
        with open(self.path, "rb") if self._content is None else io.BytesIO(self._content) as file:
            for stream in self._streams:
                try:
                    sound = _sound(self.path, stream.content(file))
                except AudioError as error:
                    reason = f"{stream.problem}. Fetch or write it again" if stream.problem else error.reason
                    raise AudioError(self.path, reason) from error
                yield sound


class _Sound(soundfile.SoundFile):
    """A file that is read from the front. soundfile seeks after each read, which some codecs cannot."""

    def seekable(self) -> bool:
        return False


@functools.lru_cache(maxsize=64)
def _streams(path: str, size: int, changed: int, thorough: bool) -> list[Stream]:
    with open(path, "rb") as file:
        return streams_of(file, size, thorough, path)


def _sound(path: str | Path, content: bytes | None) -> _Sound:
    try:
        return _Sound(path if content is None else io.BytesIO(content))
    except soundfile.LibsndfileError as error:
        whole = f"its {len(content or b''):,} bytes cannot be read as audio: {error.error_string}"
        raise AudioError(path, _why_not_audio(Path(path), error.error_string) if content is None else whole) from error


def _seek(sound: _Sound, start: int) -> None:
    """Go to a sample: by decoding where the codec cannot seek."""
    if start:
        try:
            sound.seek(start)
        except soundfile.LibsndfileError:
            for _ in _blocks(sound, start):
                pass


def _blocks(sound: _Sound, wanted: int) -> Iterator[Samples]:
    """The next samples, up to `wanted`."""
    while wanted > 0 and len(samples := sound.read(min(wanted, BLOCK), dtype="float32", always_2d=True)):
        wanted -= len(samples)
        yield samples


def _counted(sound: _Sound) -> int:
    """The number of samples that decode."""
    count = sum(map(len, _blocks(sound, UNKNOWN)))
    sound.seek(0)
    return count


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
