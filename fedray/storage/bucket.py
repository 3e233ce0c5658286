"""A folder in a bucket, through pyarrow's file systems: S3, Google Cloud Storage, Azure and others."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, final
from urllib.parse import parse_qsl, quote, urlencode

from fedray.storage.base import Storage, join
from fedray.storage.files import faults, write_atomically

T = TypeVar("T")
CONNECTIONS = 8  # at once, because latency takes the time, not the disk
PIECE = 8 << 20  # bytes


@final
class ObjectStorage(Storage):
    """A folder in a bucket.

    Buckets have no renames: a group of files counts once its manifest is written, after all other files.
    """

    def __init__(self, uri: str, inside: str = "") -> None:
        self._uri = uri
        self._inside = inside  # names below the URI, which may contain characters that a URI may not
        self._files, base = opened(uri)
        self._base = join(base, inside)

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[str, str]]:
        return ObjectStorage, (self._uri, self._inside)

    @property
    def place(self) -> str:
        shown, options = without_secrets(self._uri)
        return join(shown, quote(self._inside)) + options

    @property
    def local(self) -> None:
        return None

    def child(self, name: str) -> ObjectStorage:
        return ObjectStorage(self._uri, join(self._inside, name))

    def shown(self, name: str) -> str:
        return join(without_secrets(self._uri)[0], self._inside, name)

    def read(self, name: str) -> bytes:
        with self._found(name), self._files.open_input_stream(self._key(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        with faults(self.shown(name), remote=True), self._files.open_output_stream(self._key(name)) as stream:
            stream.write(data)  # the object appears when the stream is closed

    def exists(self, name: str) -> bool:
        with faults(self.shown(name), "read", remote=True):
            return bool(self._files.get_file_info(self._key(name)).is_file)

    def names(self, folder: str = "") -> list[str]:
        return sorted(info.base_name for info in self._list(folder, recursive=False))

    def sizes(self, folder: str = "") -> dict[str, int]:
        start = len(self._key(folder)) + 1
        return {info.path[start:]: info.size for info in self._list(folder, recursive=True) if info.is_file}

    def remove(self, *names: str) -> None:
        self._each(self._remove, names)

    def put(self, files: Mapping[str, Path]) -> None:
        self._each(self._put, files.items())

    def get(self, files: Mapping[str, Path]) -> None:
        self._each(self._get, files.items())

    def link(self, name: str, other: str) -> None:
        with self._found(name):
            if name != other:
                self._files.copy_file(self._key(name), self._key(other))

    def _put(self, item: tuple[str, Path]) -> None:
        name, path = item
        with (
            path.open("rb") as file,
            faults(self.shown(name), remote=True),
            self._files.open_output_stream(self._key(name)) as stream,
        ):
            shutil.copyfileobj(file, stream, PIECE)

    def _get(self, item: tuple[str, Path]) -> None:
        name, path = item
        path.parent.mkdir(parents=True, exist_ok=True)

        def write(temporary: Path) -> None:
            with (
                self._found(name),
                self._files.open_input_stream(self._key(name)) as stream,
                temporary.open("wb") as file,
            ):
                while piece := stream.read(PIECE):
                    with faults(path):
                        file.write(piece)

        write_atomically(path, write)

    def _remove(self, name: str) -> None:
        with faults(self.shown(name), "removed", remote=True):
            try:
                self._files.delete_file(self._key(name))
            except FileNotFoundError:
                with suppress(FileNotFoundError):
                    self._files.delete_dir(self._key(name))

    def _list(self, folder: str, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        with faults(self.shown(folder), "listed", remote=True):
            return list(
                self._files.get_file_info(FileSelector(self._key(folder), recursive=recursive, allow_not_found=True))
            )

    def _key(self, name: str) -> str:
        return join(self._base, name)

    @contextmanager
    def _found(self, name: str) -> Iterator[None]:
        with faults(self.shown(name), "read", remote=True):
            try:
                yield
            except FileNotFoundError:
                raise FileNotFoundError(errno.ENOENT, "there is no such file", self.shown(name)) from None

    @staticmethod
    def _each(function: Callable[[T], None], items: Iterable[T]) -> None:
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(function, items))


@lru_cache(maxsize=32)
def opened(uri: str) -> tuple[Any, str]:
    """pyarrow's file system for a URI, and the path in it. No request is made.

    pyarrow's messages quote the URI: secrets are removed from them.
    """
    from pyarrow.fs import FileSystem  # here: the import starts the AWS libraries, which most runs do not need

    shown = "".join(without_secrets(uri))
    try:
        try:  # one request for a small file instead of three
            files, base = FileSystem.from_uri(f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true")
        except ValueError:  # not S3, a pyarrow without this option, or a wrong URI
            files, base = FileSystem.from_uri(uri)
    except (ValueError, OSError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [""])[0].replace(uri, shown)
        raise ValueError(
            f"{shown}: cannot be opened ({reason}); give a path or, percent-encoded, "
            "s3://BUCKET/FOLDER?region=..., gs://..."
        ) from None
    base = base.strip("/") if files.type_name != "local" else base
    if not base:
        raise ValueError(f"{shown}: names no bucket; give s3://BUCKET/FOLDER")
    return files, base


def without_secrets(uri: str) -> tuple[str, str]:
    """(the URI without user and password, its options that are known to hold no secret)."""
    head, _, query = uri.partition("?")
    scheme, _, rest = head.partition("://")
    user, at, server = rest.rpartition("@") if ":" in rest.partition("/")[0] else rest.partition("@")
    if at and not (scheme.startswith("abfs") and ":" not in user):  # abfs://container@account/path
        rest = server
    harmless = [(name, value) for name, value in parse_qsl(query) if name in ("region", "scheme", "endpoint_override")]
    return f"{scheme}://{rest.rstrip('/')}", f"?{urlencode(harmless, safe=':/')}" if harmless else ""
