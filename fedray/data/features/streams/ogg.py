"""Ogg (Vorbis, Opus): a page that begins a stream after another stream is the next link of a chain (RFC 3533)."""

from __future__ import annotations

from typing import BinaryIO

from fedray.data.features.streams.stream import Stream, at, untouched

MAGIC = b"OggS"
HEAD = 27  # bytes of a page's head before its table of segments
BEGINS = 2  # the flag of the first page of a stream


def streams(file: BinaryIO, size: int) -> list[Stream]:
    """The links of a chain, each with all its complete pages."""
    data = at(file, 0, size)
    starts: list[int] = []
    place, end, begins, problem = 0, 0, False, None
    while (place := data.find(MAGIC, place)) >= 0:
        table = data[place + HEAD : place + HEAD + data[place + HEAD - 1]] if place + HEAD <= size else b""
        length = HEAD + len(table) + sum(table)
        if place + length > size or (table and len(table) < data[place + HEAD - 1]):
            problem = "truncated: its last page is incomplete"
            break
        first = bool(data[place + 5] & BEGINS)
        if first and not begins:  # else one of several streams that begin together
            starts.append(place)
        begins = first
        place = end = place + length
    if not starts:
        return [untouched(size)]
    links = list(zip(starts, [*starts[1:], end], strict=True))
    return [Stream((link,), 1.0, problem if link[1] == end else None) for link in links]
