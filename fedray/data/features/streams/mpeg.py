"""MPEG audio (mp3): its length is the number of its frames. A Xing frame states it, if the encoder could go back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fedray.data.features.streams.stream import Stream, id3

KBITS = {  # (version 1, layer) -> kbit/s by index
    (True, 1): range(0, 449, 32),
    (True, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
RATES = (44100, 48000, 32000)  # Hz in version 1; half of it in version 2, a quarter in 2.5
SAMPLES = {  # version and layer as the second byte of a head codes them -> samples of a frame
    version << 3 | 4 - layer << 1: 384 if layer == 1 else 576 if layer == 3 and version != 3 else 1152
    for version in (0, 2, 3)
    for layer in (1, 2, 3)
}
KIND = 0xFE0C  # the bits of the second and third byte that say version, layer and rate
LAYER_3 = 1  # as the header codes it
ROOM = 64  # bytes of a frame that can hold a Xing tag


class Frame(NamedTuple):
    """A frame, with its head."""

    place: int
    length: int
    kind: int  # see KIND
    counted: int | None  # frames that its Xing tag states, 0 if the tag states none; None: it has no such tag


def is_frame(head: bytes) -> bool:
    """Whether a frame begins with these bytes."""
    return len(head) > 3 and head[0] == 0xFF and head[1] << 8 | head[2] in LENGTHS


def streams(data: bytes, start: int, stop: int) -> list[Stream]:
    """The streams between two places. A Xing tag or another rate begins a new one."""
    groups: list[list[Frame]] = []
    problem = None
    for frame in _frames(data, start, stop):
        if frame.place + frame.length > stop:
            problem = "truncated: its last frame is incomplete"
        elif not groups or frame.counted is not None or frame.kind != groups[-1][-1].kind:
            groups.append([frame])
        else:
            groups[-1].append(frame)
    return [_stream(data, group, problem if group is groups[-1] else None) for group in groups]


def _stream(data: bytes, frames: list[Frame], problem: str | None) -> Stream:
    first, last = frames[0], frames[-1]
    sound = frames[first.counted is not None :]
    ends = (first.place, last.place + last.length)
    samples = SAMPLES[first.kind >> 8 & 0x1E] * len(sound)
    if not sound or (first.counted is not None and abs(first.counted - len(sound)) <= 1):
        return Stream((ends,), 1.0, problem)
    constant = all(abs(frame.length - sound[0].length) <= 4 for frame in sound)  # a frame may be padded
    if first.counted is None and (constant or first.kind >> 9 & 3 != LAYER_3):
        return Stream((ends,), 1.0, problem, samples)  # decoders find the length from that of the first frame
    parts = (_xing(data, first, len(sound)), (sound[0].place, ends[1]))
    return Stream(parts, first.counted / len(sound) if first.counted else None, problem)


def _frames(data: bytes, place: int, stop: int) -> Iterator[Frame]:
    """All frames; the last may reach beyond `stop`. What is not a frame is passed over, as decoders do."""
    kind = None
    while place + 4 <= stop:
        code = data[place + 1] << 8 | data[place + 2]
        length = LENGTHS.get(code) if data[place] == 0xFF else None
        if length is not None and (kind == code & KIND or _follows(data, place, stop)):
            kind = code & KIND
            yield Frame(place, length, kind, _counted(data, place, kind))
            place += length
        elif tag := id3(data[place : place + 10]):
            place += tag
        else:
            place = data.find(b"\xff", place + 1, stop)
            if place < 0:
                return


def _follows(data: bytes, place: int, stop: int) -> bool:
    """Whether a frame of the same kind, or the end, follows the frame at `place`."""
    code = data[place + 1] << 8 | data[place + 2]
    after = place + LENGTHS[code]
    if after + 4 > stop:
        return after == stop
    next_code = data[after + 1] << 8 | data[after + 2]
    return data[after] == 0xFF and next_code in LENGTHS and next_code & KIND == code & KIND


def _side(kind: int, last: int) -> int:
    """Bytes between the head of a frame of layer 3 and a Xing tag. `last`: the fourth byte of the head."""
    mono = last >> 6 == 3
    return (17 if mono else 32) if kind >> 11 & 3 == 3 else (9 if mono else 17)


def _counted(data: bytes, place: int, kind: int) -> int | None:
    after = place + 4 + _side(kind, data[place + 3])
    for tag in (after, after + 2 * (not data[place + 1] & 1)):  # a checksum may follow the head
        if data[tag : tag + 4] in (b"Xing", b"Info") and tag + 12 <= len(data):
            return int.from_bytes(data[tag + 8 : tag + 12], "big") if data[tag + 7] & 1 else 0
    return None


def _xing(data: bytes, first: Frame, count: int) -> bytes:
    """A frame with a Xing tag of `count` frames, as `ffmpeg -c copy` puts in front."""
    version = data[first.place + 1] | 1  # without a checksum
    third = data[first.place + 2] & 0x0C
    length, bits = min(
        (size, code & 0xFF) for code, size in LENGTHS.items() if code & 0xFF0E == version << 8 | third and size >= ROOM
    )
    last = data[first.place + 3]
    tag = b"Xing" + (1).to_bytes(4, "big") + count.to_bytes(4, "big")
    head = bytes((0xFF, version, bits, last)) + bytes(_side(first.kind, last))
    return (head + tag).ljust(length, b"\0")


def _lengths() -> dict[int, int]:
    """Second and third byte of a frame -> its length in bytes."""
    found = {}
    for version, divisor in ((3, 1), (2, 2), (0, 4)):
        for layer in (1, 2, 3):
            samples = SAMPLES[version << 3 | 4 - layer << 1]
            slot = 4 if layer == 1 else 1  # bytes of the padding
            for index, kbits in enumerate(KBITS[version == 3, layer]):
                for code, rate in enumerate(RATES) if index else ():
                    plain = samples // 8 // slot * 1000 * kbits // (rate // divisor)
                    for padding in (0, 1):
                        second = 0xE0 | version << 3 | 4 - layer << 1
                        third = index << 4 | code << 2 | padding << 1
                        for key in (second << 8 | third, (second | 1) << 8 | third):
                            found[key] = found[key | 1] = slot * (plain + padding)
    return found


LENGTHS = _lengths()
