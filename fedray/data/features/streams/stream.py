"""A stream of audio within a file, and what its readers share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

Range = tuple[int, int]  # bytes of a file: the first, and the one after the last


@dataclass(frozen=True)
class Stream:
    """One stream; a file that `cat` joined has several.

    `parts` make a file of its own that libsndfile reads to its end: ranges of the file, and bytes that correct it.
    """

    parts: tuple[Range | bytes, ...]
    stated: float | None  # the header's length as a multiple of the true one; None: the header states none
    problem: str | None = None  # what is wrong with its end
    samples: int | None = None  # in each channel; None: as libsndfile reads the parts

    def content(self, file: BinaryIO) -> bytes:
        """The bytes of the parts."""
        return b"".join(
            part if isinstance(part, bytes) else at(file, part[0], part[1] - part[0]) for part in self.parts
        )


def untouched(size: int) -> Stream:
    """The whole file as it is."""
    return Stream(((0, size),), 1.0)


def at(file: BinaryIO, start: int, count: int) -> bytes:
    """`count` bytes from `start`, fewer at the end of the file."""
    file.seek(start)
    return file.read(max(0, count))


def found(file: BinaryIO, pattern: bytes, start: int, size: int) -> Iterator[int]:
    """The places of a pattern from `start` on."""
    content = at(file, start, size - start)
    place = content.find(pattern)
    while place >= 0:
        yield start + place
        place = content.find(pattern, place + 1)


def after_tags(file: BinaryIO, size: int) -> int:
    """The first byte after the ID3v2 tags at the beginning of a file."""
    start = 0
    while (tag := id3(at(file, start, 10))) and start + tag <= size:
        start += tag
    return start


def id3(head: bytes) -> int:
    """The bytes of the ID3v2 tag that begins with these ten bytes; 0: none begins here."""
    if head[:3] != b"ID3" or len(head) < 10 or max(head[6:10]) > 127:
        return 0
    size = head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]
    return 10 + size + 10 * (head[5] >> 4 & 1)  # the bit says that a footer of ten bytes follows
