"""Ways in which an audio file comes about: whole, from a pipe, cut short, joined, with a wrong count in its header."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np
import soundfile

RATE = 16000
SECONDS = 1.2437  # so that no other number of a header is equal to a count
KEPT = 0.6  # of a file that was cut
HEAD = 400  # bytes in which a header counts
RATES = {"WVE": 8000, "XI": 44100, "VOC": 8000}  # formats that do not know the usual rate
UNREADABLE = ("SD2", "RAW")  # libsndfile cannot read these without more files or settings


def signal(seconds: float = SECONDS, rate: int = RATE) -> np.ndarray:
    """A voice-like sound whose every stretch differs from the others."""
    time = np.arange(round(seconds * rate)) / rate
    sweep = np.sin(2 * np.pi * (200 * time + 400 * time**2))
    return (0.3 * sweep + 0.02 * np.random.default_rng(0).standard_normal(len(time))).astype(np.float32)


def written(form: str, subtype: str) -> bytes | None:
    """The signal as a file of libsndfile; None: libsndfile does not write it."""
    file, rate = io.BytesIO(), RATES.get(form, RATE)
    try:
        soundfile.write(file, signal(rate=rate), rate, format=form, subtype=subtype)
    except soundfile.LibsndfileError:
        return None
    return file.getvalue()


def formats() -> list[tuple[str, str]]:
    """All formats and subtypes that libsndfile knows and reads."""
    known = [
        (form, subtype) for form in soundfile.available_formats() for subtype in soundfile.available_subtypes(form)
    ]
    return [(form, subtype) for form, subtype in known if form not in UNREADABLE]


def counts(content: bytes, samples: int) -> list[tuple[int, int, str]]:
    """The fields of a header that count samples or bytes: (place, bytes, order)."""
    if content[:4] == b" paf":  # it counts nothing
        return []
    size = len(content)
    values = {samples, *(samples * width for width in (2, 3, 4, 8)), *range(size - HEAD, size + 1)}
    found: list[tuple[int, int, str]] = []
    for width in (8, 4):
        for place in range(4, min(HEAD, size - width)):
            for order in ("little", "big") if place % 2 == 0 or content[:4] == b"\0\0\0\0" else ():
                taken = any(place < at + bytes_ and at < place + width for at, bytes_, _ in found)
                if not taken and int.from_bytes(content[place : place + width], order) in values:
                    found.append((place, width, order))
    return found


def with_counts(content: bytes, samples: int) -> Iterator[tuple[str, bytes]]:
    """The file with one count of its header, or all, changed: (how, content)."""
    fields = counts(content, samples)
    changes = {
        "zero": lambda value, width: 0,
        "half": lambda value, width: value // 2,
        "twice": lambda value, width: value * 2,
        "SoX's pipe": lambda value, width: 0x7FFFF000 if width == 4 else 2**63 - 4096,
        "signed": lambda value, width: 2 ** (8 * width - 1) - 1,
        "ones": lambda value, width: 2 ** (8 * width) - 1,
    }
    for how, change in changes.items():
        alone = [(field,) for field in fields] if how in ("zero", "half", "twice") else []
        for chosen in {tuple(fields), *alone}:
            data = bytearray(content)
            for place, width, order in chosen:
                value = change(int.from_bytes(data[place : place + width], order), width)
                data[place : place + width] = value.to_bytes(width, order)
            if chosen:
                yield f"{how} at {[place for place, *_ in chosen]}", bytes(data)
    if content[:4] == b"NIST":
        for count in (0, samples // 2, 2 * samples, 2**31 - 1):
            yield f"sample_count {count}", _nist(content, count)
    if content[:4] == b"fLaC":
        for count in (0, samples // 2, 2 * samples, 2**36 - 1):
            yield f"total {count}", flac(content, count)


def flac(content: bytes, count: int) -> bytes:
    """A FLAC file whose header states `count` samples."""
    packed = int.from_bytes(content[18:26], "big") >> 36 << 36 | count
    return content[:18] + packed.to_bytes(8, "big") + content[26:]


def _nist(content: bytes, count: int) -> bytes:
    head = re.sub(rb"sample_count -i \d+", b"sample_count -i %d" % count, content[:1024]).ljust(1024)[:1024]
    return head + content[1024:]


def all_ways(content: bytes, samples: int) -> Iterator[tuple[str, bytes, float]]:
    """The file in all ways: (way, content, how many of its samples are there as a multiple of what was written)."""
    yield "whole", content, 1.0
    yield "cut", content[: round(KEPT * len(content))], KEPT
    yield "joined", content + content, 2.0
    for how, data in with_counts(content, samples):
        yield f"count: {how}", data, 1.0
