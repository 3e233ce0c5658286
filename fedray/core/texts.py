"""Text from outside: decode and parse files with errors that name them, and make text harmless to show."""

from __future__ import annotations

import io
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.markup import escape

MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # byte order marks, the first bytes of a file
# The first bytes of files that are taken for text -> what they are, and what to do.
KINDS = {
    b"PK\x03\x04": ("a zip archive or a spreadsheet", "unpack it, or export it as text"),
    b"\x1f\x8b": ("compressed with gzip", "unpack it with `gunzip`"),
    b"BZh": ("compressed with bzip2", "unpack it with `bunzip2`"),
    b"\xfd7zXZ": ("compressed with xz", "unpack it with `unxz`"),
    b"(\xb5/\xfd": ("compressed with zstd", "unpack it with `unzstd`"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it"),
    b"Rar!": ("a rar archive", "unpack it"),
    b"PAR1": ("Parquet", "read it with data.corpus=huggingface"),
    b"SQLite": ("a database of SQLite", "export the table as text"),
    b"\xd0\xcf\x11\xe0": ("a document of old Office versions", "export it as text"),
    b"%PDF": ("a PDF", "export it as text"),
    **dict.fromkeys((b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb"), ("audio", "name the list of the audio instead")),
}
LFS = b"version https://git-lfs"
NOT_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Control characters except line feed and tab, characters that change the direction of text, and surrogates.
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def no_file(path: str | os.PathLike[str]) -> str | None:
    """What is at the path instead of a file: "missing", "a folder", "a named pipe", ...; None for a file."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except (OSError, ValueError) as error:  # a link to itself; a zero byte in the name
        return getattr(error, "strerror", None) or str(error)
    return "a folder" if kind == stat.S_IFDIR else NOT_FILES.get(kind)


def check_is_file(path: Path, remedy: str) -> None:
    """ValueError: something else than a file is at the path, such as a folder. A missing file is for who opens it."""
    if (problem := no_file(path)) not in (None, "missing"):
        raise ValueError(f"{path} is {problem}, not a file: {remedy}")


@contextmanager
def opened(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """Open a text file to read, as UTF-8 with or without a byte order mark.

    ValueError: the path is not a file (reading a named pipe would wait for ever), or the file is a Git LFS stub or not
    UTF-8; the message names it. FileNotFoundError: it is missing.
    """
    check_is_file(path, "name a text file")
    if path.exists() and is_lfs_stub(path):
        raise ValueError(f"{path} is a Git LFS stub: fetch the file with `git lfs pull`")
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        raise _not_utf8(path, path.read_bytes(), error) from error


def is_lfs_stub(path: str | os.PathLike[str]) -> bool:
    """Whether the file is a Git LFS stub: the few lines that a clone without Git LFS holds in place of a file."""
    with open(path, "rb") as file:
        return file.read(len(LFS)) == LFS


def read_text(path: Path) -> str:
    """Read a whole text file, with the errors of `opened`."""
    with opened(path) as file:
        return file.read()


def decoded(data: bytes, name: object) -> str:
    """Decode the bytes of a file. ValueError: they are not UTF-8; the message begins with `name`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(name, data, error) from error


def _not_utf8(name: object, data: bytes, error: UnicodeDecodeError) -> ValueError:
    if kind := next((KINDS[start] for start in KINDS if data.startswith(start)), None):
        return ValueError(f"{name}: is not UTF-8 text but {kind[0]}: {kind[1]}")
    encoding = MARKS.get(data[:2])
    line = next((number for number, text in enumerate(io.BytesIO(data), 1) if not _is_utf8(text)), 1)
    where, reason = (name, "it begins as UTF-16 does") if encoding else (f"{name}:{line}", error.reason)
    remedy = f"convert it, for instance with `iconv -f {encoding or 'LATIN1'} -t UTF-8`"
    return ValueError(f"{where}: is not UTF-8 text ({reason}): {remedy}")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def parsed(text: str, where: object, line: int | None = None) -> Any:
    """Parse a JSON text. ValueError: it is not JSON, or is nested too deep; the message begins with `where:line`.

    `line`: the text's line in its file; None: the text is the whole file, and the JSON error gives the line.
    """
    where = where if line is None else f"{where}:{line}"
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{where}:{error.lineno}" if line is None else where
        raise ValueError(f"{where}: is not JSON ({error.msg}): correct it") from error
    except RecursionError as error:
        raise ValueError(f"{where}: is nested too deep: correct it") from error
    except ValueError as error:  # an integer of thousands of digits
        raise ValueError(f"{where}: holds a number that is too long: correct it") from error


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that every program can read: NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def unusable(text: str) -> str | None:
    """What the text holds that no file or path can: a zero byte, or half of a surrogate pair; None: nothing."""
    if "\0" in text:
        return "a zero byte"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a lone surrogate, which is half a character"
    return None


def printable(text: str) -> str:
    r"""The text with control characters escaped (`\x1b`), so that data cannot control a terminal. Line feeds stay."""
    return HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def rich_text(text: str) -> str:
    """The text escaped for rich: markup and control characters are shown literally."""
    return escape(printable(text))


def cell(value: object) -> object:
    """A cell of a CSV file: text that a spreadsheet would read as a formula gets a leading apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
