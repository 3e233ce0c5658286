"""The readers accept sound files, and the fuzzer finds damage that breaks a reader."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import play
from tests.fuzz.targets import Target, targets


@pytest.mark.parametrize("kind", targets())
def test_a_sound_file_is_read(kind: str, tmp_path: Path) -> None:
    target = targets()[kind]
    target.prepare(tmp_path)
    (tmp_path / target.name).write_bytes(target.content)
    target.read(tmp_path)


def test_some_damaged_files(tmp_path: Path) -> None:
    for number in range(200):
        kind, content = play.case(0, number)
        (folder := tmp_path / str(number)).mkdir()
        assert play.played(kind, content, folder) is None, f"python -m tests.fuzz --only {number}"


def refuses(folder: Path) -> None:
    raise ValueError("it is broken")


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda folder: os._exit(3), "the process died (status 3)"),
        (lambda folder: time.sleep(60), "more than 1 s"),
        (lambda folder: bytearray(200 << 30), "MemoryError"),
        (lambda folder: {}["key"], "KeyError: 'key'"),
        (refuses, "ValueError: it is broken"),
    ],
)
def test_what_is_found(
    read: Callable[[Path], object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "targets", lambda: {"a": Target("a.txt", b"sound", read)})
    if "more than" in words:
        monkeypatch.setattr(play, "SECONDS", 1.0)
    done, findings = play.fuzz(0, 60.0, 1, tmp_path, most=1)
    assert done >= 1 and findings[0] == f"0, a: {words}"
    assert (tmp_path / "0.bin").read_bytes() == play.case(0, 0)[1]
