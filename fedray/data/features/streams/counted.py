"""Formats without chunks: AU, NIST SPHERE, and the rare ones."""

from __future__ import annotations

import re
from typing import BinaryIO, Literal

from fedray.data.features.streams.stream import Stream, at, found, untouched

AU: dict[bytes, Literal["big", "little"]] = {b".snd": "big", b"dns.": "little"}
NIST = b"NIST_1A"
STREAMED = 0x7F000000  # sizes from here on are what programs write into pipes, if the file is smaller
SLACK = 64  # bytes that may follow the samples
MAT4 = (b"\0\0\0\0\1\0\0\0", b"\0\0\x03\xe8\0\0\0\1")  # begins with a matrix of one row


def streams(file: BinaryIO, size: int, head: bytes) -> list[Stream]:
    """The streams of an AU or a NIST SPHERE file."""
    magic = head[:4] if head[:4] in AU else NIST
    streams, start = [], 0
    while start < size:
        body, count = _au(at(file, start, 24)) if magic in AU else _nist(at(file, start, 1024))
        body += start
        known = count > 0 and not (count >= STREAMED and body + count > size)
        stop = body + count
        if not known or (stop < size - SLACK and not _begins(file, stop, magic)):
            stop = next((place for place in found(file, magic, body, size) if _begins(file, place, magic)), size)
        stop = min(stop, size) if size - stop > SLACK else size
        there = max(1, stop - body)
        parts: tuple[tuple[int, int] | bytes, ...] = ((start, stop),)
        if magic in AU and count != there:
            parts = ((start, start + 8), there.to_bytes(4, AU[magic]), (start + 12, stop))
        near = abs(count - there) <= SLACK
        streams.append(Stream(((start, stop),) if near else parts, 1.0 if near else count / there if known else None))
        start = stop
    return streams


def repeated(data: bytes) -> list[Stream]:
    """The streams of a rare format, each of which begins as the first does."""
    size = len(data)
    head = data[: 31 if data.startswith(MAT4) else 8]
    if len(set(head)) < 4:  # it may be silence
        return [untouched(size)]
    starts = [match.start() for match in re.finditer(re.escape(head), data)]
    return [Stream((ends,), 1.0) for ends in zip(starts, [*starts[1:], size], strict=True)]


def _au(head: bytes) -> tuple[int, int]:
    """The bytes of the header and of the samples that it states."""
    order = AU[head[:4]]
    return int.from_bytes(head[4:8], order), int.from_bytes(head[8:12], order)


def _nist(head: bytes) -> tuple[int, int]:
    """The bytes of the header and of the samples that it states; 0 if they are unknown."""
    size = int(head[8:16]) if head[8:16].strip().isdigit() else 1024
    numbers = {name: int(value) for name, value in re.findall(rb"(\w+) -i (\d+)", head)}
    if b"shorten" in head or b"sample_n_bytes" not in numbers:
        return size, 0
    channels = numbers.get(b"channel_count", 1)
    return size, numbers.get(b"sample_count", 0) * numbers[b"sample_n_bytes"] * channels


def _begins(file: BinaryIO, place: int, magic: bytes) -> bool:
    """Whether a file of this format begins at a place. Four bytes alone may be samples."""
    head = at(file, place, 24)
    if magic == NIST:
        return head.startswith(NIST + b"\n")
    return head.startswith(magic) and len(head) == 24 and 24 <= _au(head)[0] < 65536 and head[12:16].count(0) == 3
