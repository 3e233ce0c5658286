"""CREMA-D, on a tree in the official layout."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from fedray.data.corpora.official.crema_d import fold_of
from fedray.data.corpora.official.layout import LeftOut
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import divide
from tests import trees
from tests.trees import ACTORS, LFS_STUB, VOTES, read, tone, vote_table, write


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trees.crema_d(tmp_path_factory.mktemp("crema")) / "CREMA-D"


@pytest.fixture
def tree(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "CREMA-D"))


def test_labels_are_the_raters(made: Path) -> None:
    said = (
        r"4 of 187 recordings are left out: 1 broken as distributed \(1076_MTI_SAD_XX\); "
        r"1 without a majority \(1002_IEO_SAD_MD\); 2 voted disgust or fear \(1001_IEO_DIS_LO, 1001_IEO_FEA_HI\)"
    )
    with pytest.warns(LeftOut, match=said):
        splits = read("crema_d", made.parent)
    everyone = [row for part in splits.values() for row in part]
    assert Counter(row.label for row in everyone) == {"ang": 91, "neu": 91, "sad": 1}
    assert {row.speaker for row in everyone} == {str(actor) for actor in ACTORS}
    (sad,) = [row for row in everyone if row.label == "sad"]
    assert (sad.utterance, sad.speaker, sad.seconds, Path(sad.path).name) == (
        "1040_ITH_SAD_X",
        "1040",
        0.25,
        "1040_ITH_SAD_X.wav",
    )
    for part in splits.values():
        part.check()


def test_labels_are_what_was_asked_for(made: Path) -> None:
    with pytest.warns(LeftOut, match=r"1 of 187 recordings are left out: 1 broken as distributed"):
        splits = read("crema_d", made, labels="names")
    labels = Counter(row.label for part in splits.values() for row in part)
    assert labels == {"ang": 91, "neu": 91, "dis": 1, "fea": 1, "sad": 2}


def test_folds_are_over_actors(made: Path) -> None:
    # KFold(5) over 91 actors in order: the first 91 % 5 folds have one actor more than 91 // 5.
    expected = {fold: 91 // 5 + (fold <= 91 % 5) for fold in range(1, 6)}
    assert Counter(map(fold_of, ACTORS)) == expected
    assert [fold_of(actor) for actor in ACTORS] == sorted(map(fold_of, ACTORS))
    with pytest.warns(LeftOut):
        splits = read("crema_d", made)
        actors = {split: set(part.column("speaker")) for split, part in splits.items()}
        assert {split: len(names) for split, names in actors.items()} == {"train": 91 - 2 * 18, "dev": 18, "test": 18}
        assert min(actors["test"]) == "1074" and max(actors["dev"]) == "1073" and max(actors["train"]) == "1055"
        assert read("crema_d", made, fold=1)["dev"].table.equals(
            splits["test"].table
        )  # the fold before the first is the last
        assert set(read("crema_d", made, fold=1, dev_fold=3)["dev"].column("speaker")) == {
            str(actor) for actor in range(1038, 1056)
        }
        assert [len(set(part.column("speaker"))) for part in read("crema_d", made, dev_fold=0).values()] == [73, 18]
        every = read("crema_d", made, fold=0)
        assert list(every) == ["train"] and len(set(every["train"].column("speaker"))) == 91
        assert list(read("crema_d", made, fold=0, dev_fold=3)) == ["train", "dev"]
    _, clients, _ = divide(splits, DataSettings())
    assert set(partition(clients, PartitionSettings(), 0)) == actors["train"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": "faces"}, "data.options.labels must be one of votes, names, not faces"),
        ({"fold": 6}, "data.options.fold must be one of 0, 1, 2, 3, 4, 5, not 6"),
        ({"fold": 2, "dev_fold": 2}, "data.options.dev_fold must be one of 0, 1, 3, 4, 5, not 2"),
    ],
)
def test_settings_that_cannot_be(made: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read("crema_d", made, **options)


@pytest.mark.parametrize(
    ("votes", "words"),
    [
        (
            {"1001_IEO_DIS_LO": "X"},
            r"csv:184: MultiModalVote must be one of N, H, S, A, D, F, or several as in N:S, not 'X': restore",
        ),
        ({"1001_IEO_DIS_LO": "N:X"}, r"csv:184: MultiModalVote must be one of .* not 'N:X'"),
        (
            {"1002_WSI_HAP_XX": "H"},
            r"csv:189: .*AudioWAV/1002_WSI_HAP_XX\.wav is missing: fetch it \(with Git LFS\), or remove the line",
        ),
        ({"1001_IEO_DIS_LO.wav": "D"}, r"csv:189: 1001_IEO_DIS_LO is already in line 184"),
    ],
)
def test_a_bad_vote_is_named_by_file_and_line(tree: Path, votes: dict[str, str], words: str) -> None:
    write(tree / "processedResults" / "summaryTable.csv", vote_table(VOTES | votes))
    with pytest.raises(ValueError, match=words):
        read("crema_d", tree)


def test_recordings_without_votes_are_left_out_by_name(tree: Path) -> None:
    write(
        tree / "processedResults" / "summaryTable.csv",
        vote_table({name: vote for name, vote in VOTES.items() if "1050" not in name}),
    )
    with pytest.warns(LeftOut, match=r"2 not in the table of votes \(1050_DFA_ANG_XX, 1050_IOM_NEU_XX\)"):
        assert "1050" not in read("crema_d", tree, fold=1)["train"].column("speaker")


def test_what_the_table_is_known_to_have_too_much_is_left_out(tree: Path) -> None:
    write(tree / "processedResults" / "summaryTable.csv", vote_table(VOTES | {"1006_TIE_NEU_XX": "N"}))
    with pytest.warns(
        LeftOut, match=r"5 of 188 recordings are left out: .*; 1 rated but not distributed \(1006_TIE_NEU_XX\)"
    ):
        read("crema_d", tree)
    tone(tree / "AudioWAV" / "1006_TIE_NEU_XX.wav", 0.25)
    with pytest.warns(LeftOut, match=r"4 of 188 recordings are left out"):
        assert "1006_TIE_NEU_XX" in read("crema_d", tree)["train"].column("utterance")


def test_what_is_missing_or_strange_is_named(tree: Path) -> None:
    def refused(words: str, **options: object) -> None:
        with pytest.raises(ValueError, match=words):
            read("crema_d", tree, **options)

    sound = tree / "AudioWAV" / "1001_DFA_ANG_XX.wav"
    write(sound, LFS_STUB)
    with pytest.warns(LeftOut):
        refused(r"Table\.csv:2: .*1001_DFA_ANG_XX\.wav: a Git LFS stub, not the audio \(fetch it with `git lfs pull`\)")
        refused(r"AudioWAV:1001_DFA_ANG_XX: .*1001_DFA_ANG_XX\.wav: a Git LFS stub", labels="names")
    tone(sound, 0.25)
    table = tree / "processedResults" / "summaryTable.csv"
    write(table, LFS_STUB)
    refused(r"summaryTable\.csv is a Git LFS stub: fetch the file with `git lfs pull`")
    write(table, '"","FileName","VoiceVote"\n')
    refused(r"summaryTable\.csv has no column 'MultiModalVote', only , FileName, VoiceVote: restore the corpus' file")
    table.unlink()
    refused(r"summaryTable\.csv is missing: fetch it from the corpus' repository, or set data\.options\.labels=names")
    for actor in (1005, 1091):
        for name in ("DFA_ANG", "IOM_NEU"):
            (tree / "AudioWAV" / f"{actor}_{name}_XX.wav").unlink()
    refused(r"AudioWAV lacks recordings of 2 of the 91 actors \(1005, 1091\): fetch them")
    for name in ("1092_DFA_ANG_XX.wav", "1001_DFA_JOY_XX.wav", "1001_DFA_ANG_XX.mp3"):
        write(tree / "AudioWAV" / name, "")
        refused(rf"{name}: the name must be like 1001_DFA_ANG_XX\.wav, with actors 1001 to 1091: rename")
        (tree / "AudioWAV" / name).unlink()
    with pytest.raises(
        ValueError,
        match=r"holds no AudioWAV \(also looked in CREMA-D\): set data\.root to the folder that holds CREMA-D/",
    ):
        read("crema_d", tree / "AudioWAV")
