"""Single digits, read from recordings of tones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trees import read, tone


def test_single_digits(digits: Path, tmp_path: Path) -> None:
    splits = read("fsdd", digits, test_takes=(0, 1), dev_takes=(2, 2))
    assert {split: len(manifest) for split, manifest in splits.items()} == {"train": 200, "dev": 40, "test": 80}
    row = splits["test"][3]
    assert (row.utterance, row.speaker, row.text, row.label) == ("3_ann_0", "ann", "three", "three")
    assert row.seconds == 0.13
    assert len(read("fsdd", digits / "recordings", test_takes=(0, 1), dev_takes=(2, 2))["test"]) == 80
    with pytest.raises(
        ValueError, match=r"data\.options\.test_takes and data\.options\.dev_takes overlap at take 1: separate them"
    ):
        read("fsdd", digits, test_takes=(0, 1), dev_takes=(1, 2))
    tone(tmp_path / "recordings" / "0_ann_0.wav", 0.1, 8000)
    with pytest.raises(ValueError, match=r"1_ann_0, 2_ann_0, .* are missing"):
        read("fsdd", tmp_path)
    tone(tmp_path / "recordings" / "ann.wav", 0.1, 8000)
    with pytest.raises(ValueError, match=r"ann\.wav: the name must be digit_speaker_take"):
        read("fsdd", tmp_path)
