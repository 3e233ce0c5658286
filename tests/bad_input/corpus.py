"""The sound corpus and configuration that a case damages."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile

RATE = 16000
CONFIG = """\
name: case
data:
  corpus: tsv
  root: .
  options:
    server: [server.tsv]
    clients: [clients.tsv]
    text_column: text
model: {kind: conformer, d_model: 8, layers: 1, heads: 1, ffn: 8, kernel: 3}
algorithm: {kind: fedavg, pretrain: {steps: 0}}
cohort: {size: 1}
"""
SERVER = "path\tspeaker\ttext\tseconds\ns0.wav\tsue\tone two\t0.4\n"
CLIENTS = "path\tspeaker\ttext\tseconds\na0.wav\tann\tone\t0.2\nb0.wav\tbob\ttwo\t0.2\n"
AUDIO = {"s0.wav": 0.4, "a0.wav": 0.2, "b0.wav": 0.2}  # seconds


@functools.cache
def sound(
    seconds: float = 0.2, rate: int = RATE, subtype: str = "PCM_16", form: str = "WAV", silent: bool = False
) -> bytes:
    """Return white noise, or silence, as the bytes of an audio file."""
    file = io.BytesIO()
    samples = 0.1 * (not silent) * np.random.default_rng(0).standard_normal(int(seconds * rate))
    soundfile.write(file, samples, rate, subtype, format=form)
    return file.getvalue()


def parquet(**columns: Any) -> bytes:
    """Return a table as a Parquet file."""
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


LATIN = parquet(naive=["yes"]).replace(b"naive", "naïve".encode("latin-1"))  # pyarrow raises a UnicodeDecodeError


def write(folder: Path) -> Path:
    """Write a configuration and three utterances: one of the server and one of each of two clients."""
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "server.tsv").write_text(SERVER, encoding="utf-8")
    (folder / "clients.tsv").write_text(CLIENTS, encoding="utf-8")
    for name, seconds in AUDIO.items():
        (folder / name).write_bytes(sound(seconds))
    return folder


def put(name: str, content: str | bytes) -> Callable[[Path], object]:
    """Write a file into the folder and replace any that is there."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def config_with(line: str) -> tuple[str, int]:
    """Return the configuration with `line` at its end in place of the section of that name, and the line's number."""
    key = re.escape(line.partition(":")[0])
    before = re.sub(rf"^{key}:.*\n(  .*\n)*", "", CONFIG, flags=re.MULTILINE)
    return f"{before}{line}\n", before.count("\n") + 1


def append(line: str) -> Callable[[Path], object]:
    """Write the configuration that `config_with` returns."""
    return put("config.yaml", config_with(line)[0])


def both(*steps: Callable[[Path], object]) -> Callable[[Path], object]:
    """Take one step after the other."""
    return lambda folder: [step(folder) for step in steps]


def lists(corpus: str, file: str, content: str | bytes, options: str = "") -> Callable[[Path], object]:
    """Write a list in another format, and a configuration that names it as the clients'."""
    text = CONFIG.replace("corpus: tsv", f"corpus: {corpus}").replace("clients.tsv", file)
    text = text.replace("    server: [server.tsv]\n", "").replace("    text_column: text\n", options)
    return both(put(file, content), put("config.yaml", text))
