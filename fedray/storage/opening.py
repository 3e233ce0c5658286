"""Opens the storage at a path or URI."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fedray.storage.base import Storage
from fedray.storage.bucket import ObjectStorage, opened
from fedray.storage.local import LocalStorage


def open_storage(place: str | os.PathLike[str]) -> Storage:
    """Open a path, or a URI that pyarrow knows (s3://bucket/folder?region=..., gs://..., file:///...).

    ValueError: the URI cannot be opened.
    """
    text = os.fspath(place)
    if "://" not in text:
        if re.match(r"(s3|gs|gcs|abfss?|hdfs|file):/", text):
            raise ValueError(
                f"{text}: a URI has two slashes after the colon; give it as text, since a Path merges them into one"
            )
        return LocalStorage(Path(place).expanduser())
    files, base = opened(text)
    return LocalStorage(Path(base)) if files.type_name == "local" else ObjectStorage(text)
