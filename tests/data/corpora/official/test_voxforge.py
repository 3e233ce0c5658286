"""VoxForge, on a tree in the official layout."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from fedray.data.corpora.official.layout import LeftOut
from fedray.data.corpora.official.voxforge import LANGUAGES, speaker_of
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import divide
from tests import trees
from tests.trees import LFS_STUB, read, submission, tone, write


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trees.voxforge(tmp_path_factory.mktemp("voxforge"))


@pytest.fixture
def spanish(tmp_path: Path) -> Path:
    """Write one language without problems into the root itself."""
    submission(tmp_path / "ana-20120412-hge")
    return tmp_path


def test_six_languages(made: Path) -> None:
    with pytest.warns(LeftOut):
        splits = read("voxforge", made)
    (train,) = splits.values()
    train.check()
    # Each language has three submissions of two recordings; the faulty English ones add one recording.
    assert Counter(train.column("label")) == {language: 3 * 2 + (language == "en") for language in LANGUAGES}
    assert list(dict.fromkeys(train.column("label"))) == list(LANGUAGES)
    rows = {row.utterance: row for row in train}
    row = rows["en/annaen-20130101-xyz/a0002"]
    assert (row.speaker, row.text, row.label, row.seconds) == ("annaen", "Second one, here", "en", 0.25)
    assert Path(row.path) == made / "en" / "annaen-20130101-xyz" / "flac" / "a0002.flac"
    assert rows["ru/annaru-20120412-hge/a0001"].path.startswith(
        str(made / "ru" / "Trunk" / "Audio" / "Main" / "16kHz_16bit")
    )
    assert set(train.column("speaker")) == {
        *(f"anna{language}" for language in LANGUAGES),
        *("anonymous-20090101-abc", "odd"),
        *(f"anonymous-20090101-{language}a" for language in LANGUAGES if language != "en"),
    }
    assert (
        read("voxforge", made, languages=["es"], lower_case=True)["train"].column("text")
        == ["first sentence", "second one, here"] * 3
    )


def test_what_is_left_out_is_named(made: Path) -> None:
    with pytest.warns(LeftOut) as said:
        read("voxforge", made)
    (text,) = [str(warning.message) for warning in said]
    # Left out: 4 unusable submissions of 2, 4 recordings of the odd submission, and the archive. 37 remain.
    assert f"{made}: 13 of 50 recordings are left out: " in text
    for part in (
        "1 in archives that are not unpacked (en/packed-20120412-aaa.tgz)",
        "2 in submissions without etc/PROMPTS (en/p-20120412-aaa/a0001, en/p-20120412-aaa/a0002)",
        "2 in submissions without etc/README (en/r-20120412-aaa/a0001, en/r-20120412-aaa/a0002)",
        "2 in submissions without wav/ or flac/ (en/w-20120412-aaa/a0001, en/w-20120412-aaa/a0002)",
        "2 in submissions whose etc/PROMPTS is not UTF-8 (en/l-20120412-aaa/a0001, en/l-20120412-aaa/a0002)",
        "1 empty (en/odd-20120412-aaa/a0005)",
        "2 without a prompt (en/odd-20120412-aaa/a0002, en/odd-20120412-aaa/a0004)",
        "1 prompted but not recorded (en/odd-20120412-aaa/a0003)",
    ):
        assert part in text
    assert sum(map(int, re.findall(r"(?:: |; )(\d+) (?!of)", text))) == 13


@pytest.mark.parametrize(
    ("name", "speaker"),
    [
        ("1snoke-20120412-hge", "1snoke"),
        ("el-nino-20120412-hge", "el-nino"),
        ("douglaid-20080801", "douglaid"),
        ("rebecca-20071016_de2", "rebecca"),
        ("nollidj-20081101-rp", "nollidj"),
        ("cmu_us_ksp_arctic", "cmu_us_ksp_arctic"),
        ("anonymous-20120412-hge", "anonymous-20120412-hge"),
        ("Anonymous-20120412-hge", "Anonymous-20120412-hge"),
        ("anonymous1-20120412-hge", "anonymous1"),
    ],
)
def test_speakers(name: str, speaker: str) -> None:
    assert speaker_of(name) == speaker


def test_prompts_come_in_several_forms(spanish: Path) -> None:
    prompts = spanish / "ana-20120412-hge" / "etc" / "PROMPTS"
    write(prompts, "\ufeff*/a0001\tUNO\r\n\r\nother/place/a0002  DOS   MÁS \r\nx/a0002 DOS MÁS\n")
    prompts.rename(prompts.with_name("prompts"))
    train = read("voxforge", spanish, languages=["es"])["train"]
    assert train.column("text") == ["UNO", "DOS MÁS"] and set(train.column("label")) == {"es"}
    write(prompts.with_name("prompts"), "x/a0001 UNO\nx/a0002 DOS\nx/a0002 TRES\n")
    with pytest.warns(LeftOut, match=r"1 with two different prompts \(es/ana-20120412-hge/a0002\)"):
        assert len(read("voxforge", spanish, languages=["es"])["train"]) == 1


def test_a_file_of_no_samples_is_empty(spanish: Path) -> None:
    tone(spanish / "ana-20120412-hge" / "wav" / "a0001.wav", 0.0)
    with pytest.warns(LeftOut, match=r"1 of 2 recordings are left out: 1 empty \(es/ana-20120412-hge/a0001\)"):
        assert read("voxforge", spanish, languages=["es"])["train"].column("utterance") == ["es/ana-20120412-hge/a0002"]


@pytest.mark.filterwarnings("ignore::fedray.data.corpora.official.layout.LeftOut")
def test_speakers_are_parted(made: Path) -> None:
    _, clients, scored = divide(read("voxforge", made), DataSettings(dev_share=0.2, test_share=0.2))
    speakers = [set(part.column("speaker")) for part in (clients, *scored.values())]
    assert list(scored) == ["test", "dev"] and len(set.union(*speakers)) == sum(map(len, speakers)) == 13
    assert set(partition(clients, PartitionSettings(), 0)) == speakers[0]


def test_fedstars_lists(made: Path, tmp_path: Path) -> None:
    def listed(train: str, test: str = "es/annaes-20120412-hge/wav/a0002.wav") -> None:
        write(tmp_path / "train_split.txt", train + "\n")
        write(tmp_path / "test_split.txt", test + "\n")

    options = {"languages": ["es", "ru"], "split_files": str(tmp_path)}
    place = "Trunk/Audio/Main/16kHz_16bit"
    some = (
        f"es/{place}/annaes-20120412-hge/wav/a0001.wav",
        f"ru/{place}/annaru-20130101-xyz/wav/a0002.wav",
        f"en/{place}/x/wav/y.wav",
    )
    listed("\n".join(some))
    with pytest.warns(LeftOut, match=r"9 of 12 recordings are left out: 9 in neither list"):
        splits = read("voxforge", made, **options)
    assert {split: part.column("utterance") for split, part in splits.items()} == {
        "train": ["es/annaes-20120412-hge/a0001", "ru/annaru-20130101-xyz/a0002"],  # listed as wav, here as flac
        "test": ["es/annaes-20120412-hge/a0002"],
    }
    # Listed recordings that are unusable stay left out.
    listed(f"en/{place}/odd-20120412-aaa/wav/a0005.wav\nen/{place}/annaen-20120412-hge/wav/a0001.wav")
    with pytest.warns(LeftOut, match=r"1 empty"):
        splits = read("voxforge", made, **options | {"languages": ["en", "es"]})
    assert splits["train"].column("utterance") == ["en/annaen-20120412-hge/a0001"]
    for text, words in (
        (
            f"es/{place}/annaes-20120412-hge/wav/b0001.wav",
            r"train_split\.txt:1: the recording es/Trunk.*b0001\.wav is missing: fetch",
        ),
        (
            "a0001.wav",
            r"train_split\.txt:1: the line must read <language>/\.\.\./<submission>/wav/<name>\.wav, not 'a0001\.wav'",
        ),
        ("es/annaes-20120412-hge/wav/a0002.wav", r"test_split\.txt:1: .* is already listed for train"),
    ):
        listed(text)
        with pytest.raises(ValueError, match=words):
            read("voxforge", made, **options)


def test_what_is_missing_is_named(made: Path, spanish: Path) -> None:
    with pytest.raises(
        ValueError, match=r"data\.options\.languages must name languages, each once, such as en, es, fr, .*, not \[\]"
    ):
        read("voxforge", made, languages=[])
    with pytest.raises(ValueError, match="each once"):
        read("voxforge", made, languages=["en", "en"])
    with pytest.raises(
        ValueError,
        match=r"has no folder pt \(its folders: de, en, es, fr, it, ru\): put the submissions there, or correct",
    ):
        read("voxforge", made, languages=["es", "pt"])
    with pytest.raises(ValueError, match=r"has no folder en \(its folders: ana-20120412-hge\)"):
        read("voxforge", spanish)
    with pytest.raises(
        ValueError, match=r"this corpus needs data\.root: set it to the folder that holds the folders of the languages"
    ):
        read("voxforge", None)
    sound = spanish / "ana-20120412-hge" / "wav" / "a0001.wav"
    write(sound, LFS_STUB)
    with pytest.raises(
        ValueError,
        match=r"a0001\.wav: a Git LFS stub, not the audio .*\. Fetch the submission again, or remove the file",
    ):
        read("voxforge", spanish, languages=["es"])
    shutil.rmtree(sound.parent)
    sound.parent.mkdir()
    with (
        pytest.raises(
            ValueError,
            match=r"holds no usable recordings: unpack its archives, or remove es from data\.options\.languages",
        ),
        pytest.warns(LeftOut, match="2 prompted but not recorded"),
    ):
        read("voxforge", spanish, languages=["es"])
