"""Readers return a manifest with the content of the list, or raise a ValueError that names the file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from fedray.core.parallel import serial
from fedray.data.corpora import CORPORA
from fedray.data.features import audio
from fedray.data.manifest import Manifest
from tests.bad_input.corpus import sound

# No tabs and no line ends; control characters and other planes are allowed.
WORDS = st.text(st.characters(exclude_characters="\t\r\n\0", exclude_categories=("Cs",)), min_size=1, max_size=12)
# Fields hold nothing that splits lines, since a table has no quoting.
ROWS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6)


def read(corpus: str, folder: Path, **options: Any) -> Manifest:
    return CORPORA[corpus](**options).read(folder, 0, folder, serial)["train"]


def refused(call: Callable[[], object], *names: str) -> str | None:
    """The message of the call's ValueError, which must hold one of `names`, or None if it raises none."""
    try:
        call()
    except ValueError as error:
        assert any(name in str(error) for name in names), error
        return str(error)
    return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.wav").write_bytes(sound())
    return tmp_path


@given(ROWS)
def test_a_table_comes_back(folder: Path, rows: list[tuple[str, str]]) -> None:
    lines = ["path\tid\tspeaker\ttext\tseconds"]
    lines += [f"a.wav\tu{row}\t{speaker}\t{text}\t0.2" for row, (speaker, text) in enumerate(rows)]
    (folder / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    found = read("tsv", folder, train=["train.tsv"], id_column="id", text_column="text")
    assert list(zip(found.column("speaker"), found.column("text"), strict=True)) == rows


@given(ROWS)
def test_json_lines_come_back(folder: Path, rows: list[tuple[str, str]]) -> None:
    items = [
        {"audio_filepath": "a.wav", "duration": 0.2, "id": str(row), "speaker": speaker, "text": text}
        for row, (speaker, text) in enumerate(rows)
    ]
    text = "".join(json.dumps(item, ensure_ascii=row % 2 == 0) + "\n" for row, item in enumerate(items))
    (folder / "train.jsonl").write_text(text, encoding="utf-8", newline="")
    found = read("nemo", folder, train=["train.jsonl"], id_key="id")
    assert list(zip(found.column("speaker"), found.column("text"), strict=True)) == rows


@given(st.binary(max_size=200))
def test_any_bytes_as_a_table(folder: Path, data: bytes) -> None:
    for content in (data, b"path\tspeaker\tseconds\n" + data):
        (folder / "train.tsv").write_bytes(content)
        refused(lambda: read("tsv", folder, train=["train.tsv"]), "train.tsv")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just("\ud800")
    | st.just("a.wav"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
ITEM = st.fixed_dictionaries(
    {"audio_filepath": st.just("a.wav") | JSON, "duration": st.just(0.2) | JSON, "speaker": JSON, "text": JSON},
    optional={"offset": JSON},
)


@given(st.lists(ITEM | JSON, max_size=3))
def test_any_json_as_a_list(folder: Path, items: list[Any]) -> None:
    (folder / "train.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    refused(lambda: read("nemo", folder, train=["train.jsonl"]), "train.jsonl")
    (folder / "cuts_train.jsonl").write_text((folder / "train.jsonl").read_text())
    refused(lambda: read("lhotse", folder, train=["cuts_train.jsonl"]), "cuts_train.jsonl")
    (folder / "train.json").write_text(json.dumps({str(row): item for row, item in enumerate(items)}))
    refused(lambda: read("speechbrain", folder, train=["train.json"]), "train.json")


@given(st.integers(0, 400), st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000]), st.integers(1, 3), st.data())
def test_sound_has_its_length(tmp_path: Path, samples: int, rate: int, channels: int, data: st.DataObject) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.full((samples, channels), 0.5), rate, "PCM_16", format="WAV")
    whole = file.getvalue()
    (tmp_path / "a.wav").write_bytes(whole)
    if samples == 0:
        assert refused(lambda: audio.read(tmp_path / "a.wav", 16000), "a.wav: holds no samples")
        return
    heard = audio.read(tmp_path / "a.wav", 16000)
    assert len(heard) == -(-samples * 16000 // rate) and audio.duration(tmp_path / "a.wav") == samples / rate
    (tmp_path / "a.wav").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    refused(lambda: audio.read(tmp_path / "a.wav", 16000), "a.wav: ")


@given(st.binary(max_size=60), st.integers(0, 59))
def test_any_header_of_a_wav(tmp_path: Path, noise: bytes, place: int) -> None:
    whole = bytearray(sound())
    whole[place : place + len(noise)] = noise
    (tmp_path / "a.wav").write_bytes(whole)
    for call in (audio.read, audio.check):
        refused(
            lambda call=call: call(tmp_path / "a.wav", *((16000,) if call is audio.read else (0.2, 16000))), "a.wav: "
        )
