"""Damage to the bytes of a file."""

from __future__ import annotations

import random

# Pieces that are often misread: limits of integers, words that look like floats, marks of encodings and of ends.
PIECES = (
    *(
        value.to_bytes(size, "little")
        for size in (2, 4, 8)
        for value in (0, 1, (1 << 8 * size - 1) - 1, (1 << 8 * size) - 1)
    ),
    *(
        b"\x00",
        b"\xff",
        b"\n",
        b"\r",
        b"\t",
        b" ",
        b",",
        b'"',
        b"'",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"#",
        b"&",
        b"*",
        b"!",
    ),
    *(b"nan", b"-1", b"1e309", b"0", b"null", b"true", b"9" * 40, b"..", b"/", b"~", b"\xef\xbb\xbf", b"\xff\xfe"),
    *("é".encode("latin-1"), "\u2028".encode(), "\u202e".encode(), b"\\ud800", b"\x1b[2J", b"${HOME}", b"[" * 2000),
)


def damaged(content: bytes, dice: random.Random) -> bytes:
    """The content after one to four random changes."""
    data = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        dice.choice(CHANGES)(data, dice)
    return bytes(data)


def _place(data: bytearray, dice: random.Random) -> int:
    """A random place, often among the first 64 bytes: headers are short, and decide most."""
    return dice.randrange(min(len(data), dice.choice((64, 1 << 30))) + 1)


def _flip(data: bytearray, dice: random.Random) -> None:
    if data:
        data[_place(data, dice) % len(data)] ^= 1 << dice.randrange(8)


def _set(data: bytearray, dice: random.Random) -> None:
    if data:
        data[_place(data, dice) % len(data)] = dice.randrange(256)


def _overwrite(data: bytearray, dice: random.Random) -> None:
    piece, place = dice.choice(PIECES), _place(data, dice)
    data[place : place + len(piece)] = piece


def _insert(data: bytearray, dice: random.Random) -> None:
    place = _place(data, dice)
    data[place:place] = dice.choice(PIECES)


def _cut(data: bytearray, dice: random.Random) -> None:
    del data[_place(data, dice) :]


def _remove(data: bytearray, dice: random.Random) -> None:
    place = _place(data, dice)
    del data[place : place + dice.choice((1, 2, 8, 64))]


def _repeat(data: bytearray, dice: random.Random) -> None:
    start, place, size = _place(data, dice), _place(data, dice), dice.choice((1, 8, 64, 512))
    data[place:place] = data[start : start + size]


def _join(data: bytearray, dice: random.Random) -> None:
    """Append the file to itself, as `cat` does, or a part of it."""
    data += data[: dice.choice((len(data), len(data), 512, 44))]


def _count(data: bytearray, dice: random.Random) -> None:
    """Change a number that is near the file's size, as headers hold it."""
    order = dice.choice(("little", "big"))
    for place in range(4, min(len(data), 256) - 4, 2):
        if 0 <= len(data) - int.from_bytes(data[place : place + 4], order) < 256:
            value = dice.choice((0, 1, len(data) // 2, 2 * len(data), 0x7FFFF000, 0xFFFFFFFF))
            data[place : place + 4] = value.to_bytes(4, order)


CHANGES = (_flip, _set, _overwrite, _insert, _cut, _remove, _repeat, _join, _count)
