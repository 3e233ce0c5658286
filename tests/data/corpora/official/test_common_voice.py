"""Common Voice in the three generations of its tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fedray.data.corpora.official.clip_tables import cleaned, spoken
from fedray.data.corpora.official.layout import LeftOut
from fedray.data.federation.settings import DataSettings, ServerDataSettings
from fedray.data.federation.speech_data import divide
from tests.speech_trees import client, mp3, table
from tests.trees import LFS_STUB, read, write

OLD = "client_id path sentence up_votes down_votes age gender accent locale segment"
MIDDLE = "client_id path sentence up_votes down_votes age gender accents variant locale segment"
NEW = (
    "client_id path sentence_id sentence sentence_domain up_votes down_votes age gender accents variant locale segment"
)
SENTENCES = ('"Oui, dit-il', "L’été  s’achève…", "Où ça ?", "«\u00a0Rien !\u00a0»")
TEXTS = ["oui dit il", "l'été s'achève", "où ça", "rien"]
CLIPS = {"train": {"ann": 4, "bob": 2, "cat": 1}, "dev": {"dan": 2}, "test": {"eve": 2}}


def corpus(home: Path, header: str = OLD, suffix: str = ".mp3", audio: bool = True) -> Path:
    for split, speakers in CLIPS.items():
        rows = []
        for speaker, count in speakers.items():
            for clip in range(count):
                name = f"common_voice_fr_{speaker}{clip}"
                rows.append(
                    {"client_id": client(speaker), "path": name + suffix, "sentence": SENTENCES[clip], "locale": "fr"}
                )
                if audio:
                    mp3(home / "clips" / f"{name}.mp3", 0.5 + 0.1 * clip)
        table(home, split, header, rows)
    return home


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("common-voice")
    corpus(root / "cv-corpus-6.1-2020-12-11" / "fr")
    return root


@pytest.mark.parametrize(("header", "suffix"), [(OLD, ".mp3"), (MIDDLE, ""), (NEW, ".mp3")])
def test_the_three_generations_of_tables(header: str, suffix: str, made: Path) -> None:
    home = made / "cv-corpus-6.1-2020-12-11" / "fr"
    corpus(home, header, suffix, audio=False)
    for root, language in ((made, None), (made, "fr"), (home.parent, "fr"), (home, None)):
        splits = read("common_voice", root, language=language)
        assert {split: len(manifest) for split, manifest in splits.items()} == {"train": 7, "dev": 2, "test": 2}
    train = splits["train"]
    train.check()
    assert train.column("text")[:4] == TEXTS and train.column("utterance")[4] == "common_voice_fr_bob0"
    assert train.column("speaker")[4] == client("bob")[:16]
    assert train.array("seconds")[:4] == pytest.approx([0.5, 0.6, 0.7, 0.8], abs=0.06), "an mp3 has whole frames"


def test_texts_as_they_are(made: Path) -> None:
    texts = read("common_voice", made, punctuation=True, lower_case=False)["train"].column("text")
    assert texts[:4] == ['"Oui, dit-il', "L’été s’achève…", "Où ça ?", "« Rien ! »"]


def test_all_apostrophes_and_the_marks_of_letters_stay() -> None:
    said = pa.chunked_array([["Lʼété d´Ève, rock `n' roll", "हिन्दी में!"]], pa.large_string())
    assert cleaned(said, True, False).to_pylist() == ["l'été d'ève rock n roll", "हिन्दी में"]


def test_the_language_comes_from_the_option_the_clips_or_the_folder(tmp_path: Path) -> None:
    home = corpus(tmp_path / "uz")
    assert spoken(home, "tr") == "tr" and spoken(home, None) == "fr", "the clips are common_voice_fr_..."
    (tmp_path / "uz" / "clips").rename(tmp_path / "away")
    (tmp_path / "uz" / "clips").mkdir()
    assert spoken(home, None) == "uz"
    assert spoken(home.rename(tmp_path / "release"), None) == ""
    assert cleaned(pa.chunked_array([["Tog‘ I"]], pa.large_string()), True, False, "uz").to_pylist() == ["togʻ i"]


def test_half_of_the_clips_warm_up(made: Path) -> None:
    """The server gets the clips of ann, who has 4 of 7; bob and cat are clients."""
    settings = DataSettings(server=ServerDataSettings(utterances=0.5, largest=True))
    server, clients, _ = divide(read("common_voice", made), settings)
    assert server is not None and set(server.column("speaker")) == {client("ann")[:16]}
    assert set(clients.column("speaker")) == {client("bob")[:16], client("cat")[:16]}


def test_lengths_of_the_file_of_durations(tmp_path: Path) -> None:
    """Lengths come from the file; clips that it does not name, or names with 0 ms, are measured."""
    corpus(tmp_path / "fr")
    write(
        tmp_path / "fr" / "clip_durations.tsv",
        "clip\tduration[ms]\ncommon_voice_fr_ann0.mp3\t4200\ncommon_voice_fr_ann1.mp3\t0\n",
    )
    train = read("common_voice", tmp_path)["train"]
    assert train.array("seconds")[:3] == pytest.approx([4.2, 0.6, 0.7], abs=0.06)


def test_bad_rows_are_counted_and_named(tmp_path: Path) -> None:
    home = corpus(tmp_path / "fr")
    (home / "clips" / "common_voice_fr_ann1.mp3").unlink()
    write(home / "clips" / "common_voice_fr_bob0.mp3", "")
    write(home / "clips" / "common_voice_fr_bob1.mp3", LFS_STUB)
    with (home / "train.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{client('ann')}\tcut off\n")
        for speaker, path, sentence in (
            ("", "common_voice_fr_x", "un"),
            ("ann", "gone", "…"),
            ("dan", "common_voice_fr_dan0", "…"),
        ):
            file.write("\t".join([speaker and client(speaker), f"{path}.mp3", sentence, *[""] * 7]) + "\n")
    with pytest.warns(LeftOut) as said:
        train = read("common_voice", tmp_path, dev=None, min_words=2, max_seconds=0.75)["train"]
    assert train.column("utterance") == ["common_voice_fr_ann0", "common_voice_fr_ann2", "common_voice_fr_cat0"]
    (text,) = [str(warning.message) for warning in said if "train.tsv" in str(warning.message)]
    assert f"{home / 'train.tsv'}: 8 of 11 recordings are left out: " in text
    for part in (
        "1 with fields missing in train.tsv (line 9)",
        "1 without client_id (common_voice_fr_x.mp3)",
        "2 without audio in clips/ (common_voice_fr_ann1.mp3, gone.mp3)",
        "1 without a letter (common_voice_fr_dan0.mp3)",
        "1 shorter than 2 words (common_voice_fr_ann3.mp3)",
        "1 an empty file (common_voice_fr_bob0.mp3)",
        "1 a Git LFS stub, not the audio (fetch it with `git lfs pull`) (common_voice_fr_bob1.mp3)",
    ):
        assert part in text


def test_too_long_and_too_short(made: Path) -> None:
    with pytest.warns(LeftOut, match=r"3 shorter than 0.55 s .*; 1 longer than 0.75 s \(common_voice_fr_ann3.mp3\)"):
        train = read("common_voice", made, dev=None, test=None, min_seconds=0.55, max_seconds=0.75)["train"]
    assert len(train) == 3


def test_scores_are_of_the_whole_test_set(made: Path) -> None:
    with pytest.warns(LeftOut, match=r"train.tsv: 4 of 7 recordings are left out"):
        splits = read("common_voice", made, max_seconds=0.55)
    assert {split: len(manifest) for split, manifest in splits.items()} == {"train": 3, "dev": 2, "test": 2}


def test_what_is_missing_or_strange_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no folder with clips/: unpack the archive"):
        read("common_voice", tmp_path)
    home = corpus(tmp_path / "fr")
    (tmp_path / "it" / "clips").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"holds several languages \(found: fr, it\): set data.options.language"):
        read("common_voice", tmp_path)
    with pytest.raises(ValueError, match=r"holds no language 'de' \(found: fr, it\)"):
        read("common_voice", tmp_path, language="de")
    with pytest.raises(
        ValueError, match=r"validated.tsv is missing: set data.options.train to one of dev, test, train$"
    ):
        read("common_voice", tmp_path, language="fr", train=["validated"])
    with pytest.raises(
        ValueError, match=r"other.tsv is missing: set data.options.dev to one of dev, test, train \(null: none\)"
    ):
        read("common_voice", tmp_path, language="fr", dev="other")
    with pytest.raises(
        ValueError, match="11 utterances are in more than one row|7 utterances are in more than one row"
    ):
        read("common_voice", tmp_path, language="fr", test="train")
    with pytest.raises(ValueError, match="min_words must be at least 1"):
        read("common_voice", tmp_path, min_words=0)
    with pytest.raises(ValueError, match="names no table"):
        read("common_voice", tmp_path, train=[])
    write(home / "train.tsv", "client_id\tsentence\n")
    with pytest.raises(ValueError, match=r"train.tsv has no column 'path', only client_id, sentence: restore"):
        read("common_voice", tmp_path, language="fr")
    write(home / "train.tsv", LFS_STUB)
    with pytest.raises(ValueError, match="Git LFS stub"):
        read("common_voice", tmp_path, language="fr")
    (home / "train.tsv").write_bytes(("\t".join(OLD.split()) + "\n").encode() + b"a\tb\t\xff" + b"\t" * 7 + b"\n")
    with pytest.raises(ValueError, match=r"train.tsv: .*invalid UTF8.*restore the corpus' file"):
        read("common_voice", tmp_path, language="fr")
    write(home / "train.tsv", "\t".join(OLD.split()) + "\n")
    with pytest.raises(ValueError, match="no recording is left of 0"):
        read("common_voice", tmp_path, language="fr")


@pytest.mark.parametrize(
    ("header", "said"),
    [(OLD, ("england", "indian")), (NEW, ("England English", "India and South Asia (India, Pakistan)"))],
)
def test_accents_become_labels(header: str, said: tuple[str, str], tmp_path: Path, made: Path) -> None:
    """Accents match by their beginning, in all versions; other speakers are left out and counted."""
    home = made / "cv-corpus-6.1-2020-12-11" / "fr"
    (tmp_path / "clips").symlink_to(home / "clips")
    accents = {"ann": said[0], "bob": said[1], "cat": ""}
    for split, speakers in CLIPS.items():
        rows = [
            {"client_id": client(name), "path": f"common_voice_fr_{name}{clip}.mp3", "sentence": "un mot"}
            | {column: accents.get(name, said[0]) for column in ("accent", "accents")}
            for name, count in speakers.items()
            for clip in range(count)
        ]
        table(tmp_path, split, header, rows)
    with pytest.warns(LeftOut, match="1 of 7.*of no accent that begins with england, india"):
        splits = read("common_voice", tmp_path, accents=["england", "india"])
    assert splits["train"].column("label") == ["england"] * 4 + ["india"] * 2 and set(
        splits["test"].column("label")
    ) == {"england"}
    assert set(read("common_voice", tmp_path)["train"].column("label")) == {None}
