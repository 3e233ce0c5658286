"""IEMOCAP, on a tree in the official layout."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from fedray.data.corpora.official.iemocap import SPEAKERS
from fedray.data.corpora.official.layout import LeftOut
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import divide
from tests import trees
from tests.trees import LFS_STUB, rating, read, write

LEFT_OUT = (
    r"10 of 35 recordings are left out: 5 of other emotions \(Ses01F.* and 2 more\); 5 without agreement \(xxx\) \("
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trees.iemocap(tmp_path_factory.mktemp("iemocap"))


@pytest.fixture
def tree(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "IEMOCAP_full_release", tmp_path / "IEMOCAP_full_release"))


def test_the_talker_is_the_speaker(made: Path) -> None:
    with pytest.warns(LeftOut, match=LEFT_OUT):
        splits = read("iemocap", made)
    everyone = [row for part in splits.values() for row in part]
    # In every session the first actor has neu, exc and hap, the second ang and sad.
    assert (
        Counter(row.speaker for row in everyone) == {name: 3 if name.endswith("F") else 2 for name in SPEAKERS}
        and len(SPEAKERS) == 10
    )
    assert Counter(row.label for row in everyone) == {"neu": 5, "hap": 10, "ang": 5, "sad": 5}
    row = next(row for row in everyone if row.utterance == "Ses03M_impro01_F001")
    assert (row.speaker, row.label, row.seconds) == ("Ses03F", "hap", 0.25)
    assert row.path.endswith("Session3/sentences/wav/Ses03M_impro01/Ses03M_impro01_F001.wav")
    for part in splits.values():
        part.check()
    _, clients, _ = divide(splits, DataSettings())
    assert set(partition(clients, PartitionSettings(), 0)) == {
        f"Ses0{session}{letter}" for session in (1, 2, 3) for letter in "FM"
    }


def test_parts(made: Path) -> None:
    with pytest.warns(LeftOut, match=r"5 of 20 recordings are left out: 5 of other emotions"):
        improvised = read("iemocap", made, parts="impro")
    with pytest.warns(LeftOut, match=r"5 of 15 recordings are left out: 5 without agreement"):
        scripted = read("iemocap", made / "IEMOCAP_full_release", parts="script")
    assert sum(map(len, improvised.values())) == 5 * 3 and sum(map(len, scripted.values())) == 5 * 2
    assert all("_impro" in name for part in improvised.values() for name in part.column("utterance"))
    assert all("_script" in name for part in scripted.values() for name in part.column("utterance"))


def test_one_session_or_one_speaker_is_left_out(made: Path) -> None:
    def speakers(**options: object) -> dict[str, set[str]]:
        with pytest.warns(LeftOut):
            return {split: set(part.column("speaker")) for split, part in read("iemocap", made, **options).items()}

    sessions = {number: {f"Ses0{number}F", f"Ses0{number}M"} for number in range(1, 6)}
    everyone = set(SPEAKERS)
    assert speakers() == {"train": everyone - sessions[5] - sessions[4], "dev": sessions[4], "test": sessions[5]}
    assert speakers(test_session=1)["dev"] == sessions[5]
    assert speakers(test_session=2, dev_session=0) == {"train": everyone - sessions[2], "test": sessions[2]}
    assert speakers(test_session=0) == {"train": everyone}
    assert speakers(test_session=0, dev_session=1) == {"train": everyone - sessions[1], "dev": sessions[1]}
    one = speakers(test_speaker="Ses02M")
    assert one == {"train": everyone - sessions[2], "dev": {"Ses02F"}, "test": {"Ses02M"}}
    assert speakers(test_speaker="Ses02M", dev_session=0) == {"train": everyone - {"Ses02M"}, "test": {"Ses02M"}}
    other = speakers(test_speaker="Ses02M", dev_session=1)
    assert other == {"train": everyone - {"Ses02M"} - sessions[1], "dev": sessions[1], "test": {"Ses02M"}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parts": "improvised"}, "data.options.parts must be one of all, impro, script, not improvised"),
        ({"test_session": 6}, "data.options.test_session must be one of 0, 1, 2, 3, 4, 5, not 6"),
        ({"test_speaker": "Ses06F"}, "data.options.test_speaker must be one of Ses01F, Ses01M, .*, not Ses06F"),
        ({"test_session": 2, "dev_session": 2}, "data.options.dev_session must be one of 0, 1, 3, 4, 5, not 2"),
        ({"test_speaker": "Ses03F", "dev_session": 3}, "data.options.dev_session must be one of 0, 1, 2, 4, 5, not 3"),
    ],
)
def test_settings_that_cannot_be(made: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read("iemocap", made, **options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[6.2901 - 8.2357] Ses01F_impro01_F009 neu\n",
            r"Ses01F_impro01\.txt:1: the line must read '\[start - end\]<TAB>turn<TAB>emotion",
        ),
        (rating("Ses01F_impro02_F000", "neu"), r"impro01\.txt:1: 'Ses01F_impro02_F000' is not a turn of this dialogue"),
        (rating("Ses01F_impro01", "neu"), r"impro01\.txt:1: 'Ses01F_impro01' is not a turn of this dialogue"),
        (
            "\n" + rating("Ses01F_impro01_F000", "joy"),
            r"impro01\.txt:2: the emotion must be one of neu, ang, .* xxx, not 'joy'",
        ),
        (
            rating("Ses01F_impro01_F009", "neu"),
            r":Session1/dialog/EmoEvaluation/Ses01F_impro01\.txt:1: .*_F009\.wav: missing\. Restore",
        ),
        (
            2 * rating("Ses01F_impro01_F000", "neu"),
            r"impro01\.txt:2: the id 'Ses01F_impro01_F000' is already in .*impro01\.txt:1",
        ),
        (LFS_STUB, r"impro01\.txt is a Git LFS stub"),
    ],
)
@pytest.mark.filterwarnings("ignore::fedray.data.corpora.official.layout.LeftOut")
def test_a_bad_line_is_named(tree: Path, text: str, words: str) -> None:
    write(tree / "Session1" / "dialog" / "EmoEvaluation" / "Ses01F_impro01.txt", text)
    with pytest.raises(ValueError, match=words):
        read("iemocap", tree)


def test_what_is_missing_is_named(tree: Path) -> None:
    ratings = tree / "Session2" / "dialog" / "EmoEvaluation"
    (ratings / "Ses02F_script01_1b.txt").unlink()
    with pytest.warns(
        LeftOut, match=r"12 of 35 recordings are left out: 3 without an evaluation \(Ses02F_script01_1b_F000, "
    ):
        read("iemocap", tree)
    (ratings / "Ses02F_impro01.txt").unlink()
    with pytest.raises(
        ValueError, match=r"Session2/dialog/EmoEvaluation holds no evaluations \(Ses02F_impro01\.txt, \.\.\.\): unpack"
    ):
        read("iemocap", tree)
    shutil.rmtree(ratings)
    with pytest.raises(
        ValueError, match=r"Session2/dialog/EmoEvaluation is missing: unpack IEMOCAP_full_release again"
    ):
        read("iemocap", tree)
    shutil.rmtree(tree / "Session1")
    with pytest.raises(
        ValueError, match=r"holds no Session1 \(also looked in IEMOCAP_full_release\): set data\.root to the folder"
    ):
        read("iemocap", tree)


def test_a_stub_is_named(tree: Path) -> None:
    write(tree / "Session1" / "sentences" / "wav" / "Ses01F_impro01" / "Ses01F_impro01_F000.wav", LFS_STUB)
    with (
        pytest.raises(ValueError, match=r"Ses01F_impro01_F000\.wav: a Git LFS stub, not the audio"),
        pytest.warns(LeftOut),
    ):
        read("iemocap", tree)
