"""Small trees in the official layouts of corpora: their files, and how tests read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

from fedray.core.parallel import serial
from fedray.data.corpora import CORPORA
from fedray.data.manifest import Manifest

LFS_STUB = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 60000\n"


def read(kind: str, root: Path | None, cache: Path = Path("unused"), seed: int = 0, **options: object) -> dict[str, Manifest]:
    return CORPORA[kind](**options).read(root, seed, cache, serial)


def tone(path: Path, seconds: float = 0.5, rate: int = 16000, pitch: float = 200.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate), rate)
    return path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
