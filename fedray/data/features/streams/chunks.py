"""Formats of chunks: wav, RF64, W64, AIFF, 8SVX and CAF. The chunk of samples states how many bytes they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, Literal

from fedray.data.features.streams import mpeg
from fedray.data.features.streams.stream import Range, Stream, at, found, untouched

SLACK = 64  # bytes that a size may be wrong: a missing padding byte, a size that leaves out a part
FOREIGN = 1024  # bytes that may follow the samples although they are no chunk
FOLLOW = "bytes follow its samples and are no chunk (`ffmpeg -ignore_length 1 -i IN OUT` makes them samples)"
MPEG = (0x50, 0x55)  # codes of MPEG layers in a wav's fmt
HEAD = 64  # bytes that tell the format
COUNTED = (b"GSM ", b"DWVW")  # codings of AIFF whose number of samples libsndfile takes from the header
MANY = b"\x7f\xff\xff\xff"
GUID = bytes.fromhex("f3acd3118cd100c04f8edb8a")  # ends the names of W64's chunks


@dataclass(frozen=True)
class Layout:
    """How a format writes chunks."""

    magic: bytes
    kinds: tuple[bytes, ...]  # after the file's size
    samples: bytes  # name of the chunk of samples
    order: Literal["big", "little"] = "little"
    width: int = 4  # bytes of a size
    name: int = 4  # bytes of a chunk's name
    counts_head: bool = False  # whether a size counts the chunk's head
    align: int = 2  # chunks begin at multiples of it
    sized: bool = True  # whether the magic is followed by the file's size

    @property
    def head(self) -> int:
        return self.name + self.width

    @property
    def first(self) -> int:
        """The place of the first chunk."""
        return len(self.magic) + self.width * self.sized + len(self.kinds[0])

    def after(self, start: int, body: int, length: int) -> int:
        """The place of the next chunk in a file that begins at `start`."""
        return body + length + -(body + length - start) % self.align

    def known(self, stated: int, there: int) -> bool:
        """Whether a size is one that a writer knew: pipes leave 0, -1 or about half of the largest number."""
        return stated > 0 and not (there < stated and stated >= 0x7F << 8 * self.width - 8)

    def own_size(self, head: bytes) -> int:
        """The bytes of the whole file by its head; 0: it does not say."""
        place = len(self.magic)
        return self.sized * (
            int.from_bytes(head[place : place + self.width], self.order) + self.head * (not self.counts_head)
        )

    def begins(self, head: bytes) -> bool:
        """Whether a file of this format begins with these bytes."""
        kind = self.first - len(self.kinds[0])
        return head.startswith(self.magic) and head[kind : self.first] in self.kinds


LAYOUTS = (
    Layout(b"RIFF", (b"WAVE",), b"data"),
    Layout(b"RF64", (b"WAVE",), b"data"),
    Layout(b"BW64", (b"WAVE",), b"data"),
    Layout(b"RIFX", (b"WAVE",), b"data", "big"),
    Layout(b"FORM", (b"AIFF", b"AIFC"), b"SSND", "big"),
    Layout(b"FORM", (b"8SVX", b"16SV"), b"BODY", "big"),
    Layout(b"caff", (b"\0\1\0\0",), b"data", "big", width=8, align=1, sized=False),
    Layout(
        b"riff" + bytes.fromhex("2e91cf11a5d628db04c10000"),
        (b"wave" + GUID,), b"data" + GUID, width=8, name=16, counts_head=True, align=8,
    ),
)  # fmt: skip


def layout_of(head: bytes) -> Layout | None:
    """The layout of the file that begins with these bytes; None: it is no file of chunks."""
    return next((layout for layout in LAYOUTS if layout.begins(head)), None)


def streams(file: BinaryIO, size: int, layout: Layout) -> list[Stream]:
    """The streams of the file, which has several if files were joined."""
    streams: list[Stream] = []
    start = 0
    while start < size and layout.begins(at(file, start, HEAD)):
        more, start = _streams(file, start, size, layout)
        streams += more
    return streams or [untouched(size)]


def _streams(file: BinaryIO, start: int, size: int, layout: Layout) -> tuple[list[Stream], int]:
    """The stream that begins at `start` (several: MPEG inside a wav), and where the next file begins."""
    place, wide, code, replaced = start + layout.first, None, 0, []
    while (chunk := _chunk(file, place, size, layout)) is not None and chunk[0] != layout.samples:
        name, length = chunk
        if name == b"ds64":
            wide = place + layout.head + 8  # where RF64 states the size of the samples
        elif name == b"fmt ":
            code = int.from_bytes(at(file, place + layout.head, 2), layout.order)
        elif name == b"COMM" and at(file, place + layout.head + 18, 4) in COUNTED:
            replaced.append((place + layout.head + 2, MANY))  # the number of samples
        if length < 0 or (place := layout.after(start, place + layout.head, length)) > size:
            chunk = None
            break
    if chunk is None:
        return [Stream(((start, size),), 1.0)], size
    body, stated, field = place + layout.head, chunk[1], (place + layout.name, layout.width)
    if wide is not None and stated == 0xFFFFFFFF:
        field, stated = (wide, 8), int.from_bytes(at(file, wide, 8), "little")
    stop, after, problem = _ends(file, start, body, stated, size, layout)
    there = stop - body
    if code in MPEG:
        return mpeg.streams(at(file, 0, stop), body, stop), after
    if stated != there:
        replaced.append((field[0], (there + layout.head * layout.counts_head).to_bytes(field[1], layout.order)))
    parts: list[Range | bytes] = []
    begin = start
    for place, true in sorted(replaced):
        parts += [(begin, place), true]
        begin = place + len(true)
    known = layout.known(stated, size - body) or stated == there
    return [Stream((*parts, (begin, after)), stated / max(1, there) if known else None, problem)], after


def _chunk(file: BinaryIO, place: int, size: int, layout: Layout) -> tuple[bytes, int] | None:
    """The name of a chunk and the bytes after its head; None: no chunk begins here."""
    head = at(file, place, layout.head)
    if place + layout.head > size or not all(32 <= byte < 127 for byte in head[:4]):
        return None
    length = int.from_bytes(head[layout.name :], layout.order)
    return head[: layout.name], length - layout.head * layout.counts_head


def _ends(file: BinaryIO, start: int, body: int, stated: int, size: int, layout: Layout) -> tuple[int, int, str | None]:
    """Where the samples end, where the file ends or the next begins, and what is wrong with that."""
    end, known = body + stated, layout.known(stated, size - body)
    if known and end >= size:
        return size, size, None
    if known or stated == 0:
        after = layout.after(start, body, stated)
        for place in dict.fromkeys((after, end)):  # some programs leave the padding out
            last = _last_chunk(file, start, place, size, layout)
            if layout.begins(at(file, last, HEAD)):
                return end, last, None
            if last > place or size - place <= SLACK or at(file, place, 3) in (b"ID3", b"TAG"):
                return end, size, None
        own = layout.own_size(at(file, start, HEAD))
        if known and own and start + own <= end + SLACK:
            foreign = size - end > FOREIGN and any(at(file, end, size - end))  # else it is filled up with zeros
            return end, size, f"{size - end:,} {FOLLOW}" if foreign else None
    stop = next(
        (place for place in found(file, layout.magic, body, size) if layout.begins(at(file, place, HEAD))), size
    )
    return stop, stop, None


def _last_chunk(file: BinaryIO, start: int, place: int, size: int, layout: Layout) -> int:
    """The place after the chunks that begin at `place`."""
    while not layout.begins(at(file, place, HEAD)) and (chunk := _chunk(file, place, size, layout)) is not None:
        if not 0 <= chunk[1] <= size - place - layout.head + SLACK:
            break
        place = layout.after(start, place + layout.head, chunk[1])
    return place
