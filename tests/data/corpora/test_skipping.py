"""With data.skip_broken, a file that a reader cannot measure stays in the manifest, and is left out later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.corpora.skipping import skipping
from fedray.data.features.audio import UNMEASURED
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.features.store import build_features
from fedray.data.manifest import Manifest
from tests.trees import read, tone, voxforge, write


def cut(path: Path) -> Path:
    whole = path.read_bytes()
    path.write_bytes(whole[: 6 * len(whole) // 10])
    return path


def left_out(train: Manifest, cache: Path) -> list[str]:
    """The utterances that computing features leaves out."""
    return list(build_features(train, LogMelSettings(), cache, serial, skip_broken=True).broken)


def test_folders(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("a", "b", "c"):
        tone(root / "yes" / f"{name}.wav")
    cut(root / "yes" / "a.wav")
    soundfile.write(root / "yes" / "b.wav", np.zeros(0), 16000)
    with pytest.raises(ValueError, match=r"a\.wav: truncated: .* set data\.skip_broken=true .*1 with other problems"):
        read("folders", root)
    with skipping(True):
        train = read("folders", root)["train"]
    assert train.array("seconds").tolist() == [UNMEASURED, UNMEASURED, 0.5]
    assert left_out(train, tmp_path / "cache") == ["yes/a.wav", "yes/b.wav"]


def test_a_table_that_names_a_missing_file_is_wrong_in_any_case(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav")
    write(tmp_path / "train.tsv", "path\tspeaker\na.wav\tann\nb.wav\tbob\n")
    with skipping(True), pytest.raises(ValueError, match=r"train\.tsv:3: .*b\.wav: missing"):
        read("tsv", tmp_path, train=["train.tsv"], seconds_column=None)


def test_kaldi_segments_to_the_end(tmp_path: Path) -> None:
    tone(cut(tone(tmp_path / "a.wav")).with_name("b.wav"))
    write(tmp_path / "k" / "wav.scp", "r0 a.wav\nr1 b.wav\n")
    write(tmp_path / "k" / "segments", "u0 r0 0.1 -1\nu1 r1 0.1 -1\n")
    with pytest.raises(ValueError, match=r"segments:1: .*a\.wav: truncated: .*data\.skip_broken=true"):
        read("kaldi", tmp_path, train=["k"], speaker_file=None, text_file=None)
    with skipping(True):
        train = read("kaldi", tmp_path, train=["k"], speaker_file=None, text_file=None)["train"]
    assert train.array("seconds").tolist() == pytest.approx([UNMEASURED, 0.4])
    assert left_out(train, tmp_path / "cache") == ["u0"]


def test_speechbrain_segments_to_the_end(tmp_path: Path) -> None:
    tone(cut(tone(tmp_path / "a.wav")).with_name("b.wav"))
    write(tmp_path / "train.csv", "ID,wav,start,stop,spk_id,wrd\nu0,a.wav,1600,,s,GO\nu1,b.wav,1600,,s,GO\n")
    with pytest.raises(ValueError, match=r"train\.csv:2: .*a\.wav: truncated: .*data\.skip_broken=true"):
        read("speechbrain", tmp_path, train=["train.csv"], duration_column=None)
    with skipping(True):
        train = read("speechbrain", tmp_path, train=["train.csv"], duration_column=None)["train"]
    assert train.array("seconds").tolist() == pytest.approx([UNMEASURED, 0.4])
    assert left_out(train, tmp_path / "cache") == ["u0"]


@pytest.mark.filterwarnings("ignore::fedray.data.corpora.official.layout.LeftOut")
def test_voxforge(tmp_path: Path) -> None:
    path = cut(voxforge(tmp_path) / "en" / "annaen-20120412-hge" / "wav" / "a0001.wav")
    with pytest.raises(ValueError, match=rf"{path}: truncated: .*data\.skip_broken=true"):
        read("voxforge", tmp_path)
    with skipping(True):
        train = read("voxforge", tmp_path)["train"]
    assert left_out(train, tmp_path.with_name("cache")) == ["en/annaen-20120412-hge/a0001"]
