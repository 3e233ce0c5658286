"""Ogg (Vorbis, Opus): a page that begins a stream after another stream is the next link of a chain (RFC 3533)."""

from __future__ import annotations

from typing import BinaryIO

from fedray.data.features.streams.stream import Stream, at, untouched

MAGIC = b"OggS"
FIRST = b"OggS\0\2"  # begins the first page of a stream
HEAD = 27  # bytes of a page's head before its table of segments
CUT = "truncated: its last page is incomplete"


def streams(file: BinaryIO, size: int) -> list[Stream]:
    """The links of a chain, each with all its complete pages."""
    data = at(file, 0, size)
    links: list[list[int]] = []  # the first byte and the end of each
    cut: set[int] = set()  # the links that were cut
    place, begins = data.find(MAGIC), False
    while place >= 0:
        first = data.startswith(FIRST, place)
        if first and not begins:  # else one of several streams that begin together
            links.append([place, place])
        begins = first
        end = place + _length(data, place)
        within = data.find(FIRST, place + 1, end)  # a cut file was joined to another
        if end > size or within >= 0:
            cut.add(len(links) - 1)
        elif links:
            links[-1][1] = end
        place = within if within >= 0 else data.find(MAGIC, end)
    if not links:
        return [untouched(size)]
    return [Stream(((start, end),), 1.0, CUT if link in cut else None) for link, (start, end) in enumerate(links)]


def _length(data: bytes, place: int) -> int:
    """The bytes of the page at a place, by its head."""
    table = data[place + HEAD : place + HEAD + data[place + HEAD - 1]] if place + HEAD <= len(data) else b""
    return HEAD + len(table) + sum(table)
