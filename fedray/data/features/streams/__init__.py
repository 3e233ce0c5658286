"""The streams of audio in a file, found by its own structure: how long each is, whatever its header says.

libsndfile trusts headers. A pipe cannot write them, a cut file breaks their promise, and `cat` joins files whose first
header counts only the first file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import BinaryIO

from fedray.data.features.streams import chunks, counted, flac, mpeg, ogg
from fedray.data.features.streams.stream import Stream, after_tags, at, untouched


def streams_of(file: BinaryIO, size: int, thorough: bool, name: str = "") -> list[Stream]:
    """The streams of a file of `size` bytes, in order. A `name` in .mp3 tells what begins with other bytes.

    Without `thorough` only headers and ends are read where that suffices, and a file that was joined from FLAC files
    or rare formats may look like its first stream.
    """
    start = after_tags(file, size)
    head = at(file, start, 64)
    if layout := chunks.layout_of(head):
        return chunks.streams(file, size, layout)
    if head[:4] == flac.MAGIC[:4]:
        return flac.streams(file, start, size, thorough)
    if head[:4] == ogg.MAGIC:
        return ogg.streams(file, size)
    if head[:4] in counted.AU or head[:7] == counted.NIST:
        return counted.streams(file, size, head)
    if mpeg.is_frame(head) or start or name.lower().endswith(".mp3"):
        streams = mpeg.streams(at(file, 0, size), start, size)
        whole = len(streams) == 1 and isinstance(streams[0].parts[0], tuple)
        return [replace(streams[0], parts=((0, size),))] if whole else streams or [untouched(size)]
    return counted.repeated(at(file, 0, size)) if thorough else [untouched(size)]
