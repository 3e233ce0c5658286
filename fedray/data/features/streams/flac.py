"""FLAC: its frames are numbered, so the last one tells how many samples there are (RFC 9639)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import BinaryIO

from fedray.data.features.streams.stream import Stream, at, found

MAGIC = b"fLaC\0\0\0\x22"  # and the head of STREAMINFO, which is always the first block
TOTAL = slice(18, 26)  # rate, channels, bits a sample, and in the last 36 bits the number of samples
COUNT = 36
TAIL = 2**16  # bytes at the end that are searched first: some frames of speech
SYNC = re.compile(rb"\xff[\xf8\xf9]")
BLOCKS = {1: 192} | {code: 576 << code - 2 for code in range(2, 6)} | {code: 256 << code - 8 for code in range(8, 16)}


def streams(file: BinaryIO, start: int, size: int, thorough: bool) -> list[Stream]:
    """The streams from `start` on; without `thorough`, as if there were one."""
    single = _stream(file, start, size)
    if single.stated == 1.0 and not thorough:
        return [single]
    starts = [start, *found(file, MAGIC, start + len(MAGIC), size)]
    return [_stream(file, *ends) for ends in zip(starts, [*starts[1:], size], strict=True)] if starts[1:] else [single]


def _stream(file: BinaryIO, start: int, stop: int) -> Stream:
    head = at(file, start, 42)
    packed, block = int.from_bytes(head[TOTAL], "big"), int.from_bytes(head[10:12], "big")
    total = packed & (1 << COUNT) - 1
    stop -= 128 * (at(file, stop - 128, 3) == b"TAG")  # ID3v1
    first = max(start + 42, stop - TAIL)
    frames = list(_frames(at(file, first, stop - first), block))
    if total and any(end == total for _, _, end in frames):
        return Stream(((start, stop),), 1.0)
    if not frames:  # a frame may be longer than TAIL
        first = start + 42
        frames = list(_frames(at(file, first, stop - first), block))
    if not frames:
        return Stream(((start, stop),), 1.0)
    complete = next(
        (frame for frame in frames[:-4:-1] if _checksum(at(file, first + frame[0], stop - first - frame[0])) == 0), None
    )
    there = complete[2] if complete else frames[-1][1]
    if not there:
        return Stream(((start, stop),), 1.0, "truncated: its first frame is incomplete")
    corrected = (packed >> COUNT << COUNT | there).to_bytes(8, "big")
    parts = ((start, start + TOTAL.start), corrected, (start + TOTAL.stop, stop))
    return Stream(
        parts, total / there if total else None, None if complete else "truncated: its last frame is incomplete"
    )


def _frames(data: bytes, block: int) -> Iterator[tuple[int, int, int]]:
    """What look like frames: (place, first sample, sample after the last).

    `block`: samples of a frame in a stream whose frames are numbered.
    """
    for match in SYNC.finditer(data):
        place = match.start()
        head = data[place : place + 16].ljust(16, b"\0")
        if head[2] >> 4 == 0 or head[2] & 15 == 15 or head[3] >> 4 > 10 or head[3] & 1:
            continue
        length = 1 if head[4] < 0x80 else 8 - (~head[4] & 0xFF).bit_length()  # of the number, as in UTF-8
        if head[4] >= 0x80 and not 2 <= length <= 7:
            continue
        number = head[4] if length == 1 else head[4] & (1 << 7 - length) - 1
        for byte in head[5 : 4 + length]:
            number = number << 6 | byte & 63
        code, rest = head[2] >> 4, 4 + length
        size = BLOCKS.get(code, 0) or int.from_bytes(head[rest : rest + code - 5], "big") + 1
        end = rest + (code - 5 if code in (6, 7) else 0) + {12: 1, 13: 2, 14: 2}.get(head[2] & 15, 0)
        if _crc8(head[:end]) == head[end] if end < len(head) else False:
            begin = number if head[1] & 1 else number * block
            yield place, begin, begin + size


def _crc8(data: bytes) -> int:
    value = 0
    for byte in data:
        value = _table(0x07, 8)[value ^ byte]
    return value


def _checksum(data: bytes) -> int:
    """CRC-16, which is 0 over a frame and its own CRC."""
    value, table = 0, _table(0x8005, 16)
    for byte in data:
        value = (value << 8 & 0xFFFF) ^ table[value >> 8 ^ byte]
    return value


@functools.cache
def _table(polynomial: int, bits: int) -> list[int]:
    values = []
    for byte in range(256):
        value = byte << bits - 8
        for _ in range(8):
            value = (value << 1 ^ polynomial if value >> bits - 1 else value << 1) & (1 << bits) - 1
        values.append(value)
    return values
