"""Audio that cannot be used is refused by name, or left out by name if the configuration says so."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.bad_input.case import ACCEPTED, Case
from tests.bad_input.corpus import CLIENTS, CONFIG, RATE, both, put, sound

SKIP = put("config.yaml", CONFIG.replace("  root: .\n", "  root: .\n  skip_broken: true\n"))
MEASURED = put(
    "config.yaml", CONFIG.replace("    text_column: text\n", "    text_column: text\n    seconds_column: null\n")
)


def wav(
    data: bytes, rate: int = RATE, channels: int = 1, bits: int = 16, form: int = 1, size: int | None = None
) -> bytes:
    """Return a WAV file with these sample bytes and this header."""
    step = channels * bits // 8
    head = struct.pack("<HHIIHH", form, channels, rate, rate * step, step, bits)
    size = len(data) if size is None else size
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", len(body) + size - len(data)) + body


def floats(value: float, seconds: float = 0.2) -> bytes:
    samples = 0.1 * np.random.default_rng(0).standard_normal(int(seconds * RATE))
    samples[100] = value
    return wav(samples.astype("<f4").tobytes(), bits=32, form=3)


def flac(samples: int) -> bytes:
    """Return a FLAC file whose header claims `samples` samples."""
    data = bytearray(sound(form="FLAC"))
    packed = int.from_bytes(data[18:26], "big") >> 36 << 36 | samples
    data[18:26] = packed.to_bytes(8, "big")
    return bytes(data)


def pipe(folder: Path) -> None:
    (folder / "a0.wav").unlink()
    os.mkfifo(folder / "a0.wav")


def folder_for_file(folder: Path) -> None:
    (folder / "a0.wav").unlink()
    (folder / "a0.wav").mkdir()


def link_to_itself(folder: Path) -> None:
    (folder / "a0.wav").unlink()
    (folder / "a0.wav").symlink_to("a0.wav")


def broken(name: str, content: bytes | Callable[[Path], object], *says: str, data: bool = True) -> tuple[Case, ...]:
    """Two cases: a0.wav is refused, also by `fedray data` if `data`; with data.skip_broken it is left out and named."""
    make = put("a0.wav", content) if isinstance(content, bytes) else content
    return (
        Case(f"audio: {name}", ("a0.wav", *says), make, data=data),
        Case(f"audio: {name}, data.skip_broken", ACCEPTED, both(make, SKIP), status=1),
    )


WHOLE = sound()
CASES: tuple[Case, ...] = (
    *broken("empty file", b"", "an empty file"),
    *broken("a header alone", WHOLE[:44], "holds no samples"),
    *broken("no samples", wav(b""), "holds no samples"),
    *broken("cut in the middle", WHOLE[: len(WHOLE) // 2], "truncated"),
    *broken("cut in its header", WHOLE[:20], "cannot be read as audio"),
    *broken("text", b"no audio", "cannot be read as audio"),
    *broken("a Git LFS stub", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    *broken("no channels", wav(b"\0" * 100, channels=0), "cannot be read as audio"),
    *broken("a rate of 0 Hz", wav(b"\0" * 100, rate=0), "a0.wav"),
    *broken("a rate of 44,101 Hz", sound(rate=44101), "44,101 Hz", "16,000 Hz", "ffmpeg"),
    *broken("a rate of 2,147,483,647 Hz", wav(b"\0" * 100, rate=2**31 - 1), "a0.wav"),
    *broken("samples of 1e38", floats(1e38), "1e+38", data=False),
    *broken("samples of NaN", floats(float("nan")), "not finite", data=False),
    *broken("samples of infinity", floats(float("inf")), "not finite", data=False),
    *broken("an MP3 with another ending, cut", b"\xff\xfb\x90\x00" * 4, "cannot be read as audio"),
    *broken("a codec that libsndfile lacks", wav(b"\0" * 100, form=0x161), "cannot be read as audio"),
    broken("a named pipe", pipe, "named pipe")[0],
    broken("a folder", folder_for_file, "folder")[0],
    broken("a link to itself", link_to_itself, "Too many levels")[0],
    *broken("a FLAC header that promises 2^36 - 1 samples", flac(2**36 - 1), "promises", data=True),
    *broken("a segment that starts after the end", put("clients.tsv", CLIENTS.replace("0.2", "9", 1)), "truncated"),
    Case(
        "audio: not there", ("clients.tsv:2", "a0.wav: missing"), lambda folder: (folder / "a0.wav").unlink(), data=True
    ),
    Case(
        "audio: lengths of broken files",
        ("clients.tsv:2", "a0.wav", "an empty file"),
        both(MEASURED, put("a0.wav", b"")),
        data=True,
    ),
    Case(
        "audio: length of a FLAC header that promises 2^36 - 1 samples",
        ("clients.tsv:2", "promises"),
        both(MEASURED, put("a0.wav", flac(2**36 - 1))),
        data=True,
    ),
    Case("audio: length of a named pipe", ("clients.tsv:2", "named pipe"), both(MEASURED, pipe), data=True),
    Case(
        "audio: nothing left",
        "no client has audio that can be read",
        both(SKIP, put("a0.wav", b""), put("b0.wav", b"")),
    ),
    Case(
        "audio: a WAV whose table says 1e8 seconds",
        ("a0.wav", "truncated"),
        put("clients.tsv", CLIENTS.replace("0.2", "1e8", 1)),
        data=True,
    ),
    Case(
        "audio: a piece that starts behind the end",
        ("a0.wav", "truncated"),
        both(
            put("clients.tsv", CLIENTS.replace("seconds", "seconds\tstart", 1).replace("0.2", "0.2\t1e8")),
            put("config.yaml", CONFIG.replace("    server: [server.tsv]\n", "    offset_column: start\n")),
        ),
        data=True,
    ),
)
