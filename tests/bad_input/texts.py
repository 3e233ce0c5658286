"""Texts that no one said, tables in another's form, AudioFolders, and files that are not what their names say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.bad_input.case import Case
from tests.bad_input.corpus import CLIENTS, CONFIG, LATIN, both, lists, parquet, put, sound
from tests.bad_input.tables import NEMO, SB

DATA = "data config.yaml"
STUB = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 60000\n"
SET = """\
name: case
data: {corpus: huggingface, root: set, server: {share: 0.5}, options: {text_column: text, speaker_column: who}}
model: {kind: conformer, d_model: 8, layers: 1, heads: 1, ffn: 8, kernel: 3}
algorithm: {kind: fedavg, pretrain: {steps: 0}}
cohort: {size: 1}
"""
META = "file_name,text,who\na.wav,one,ann\nb.wav,two,bob\n"


def heard(name: str, text: str, *says: str) -> Case:
    """The case of a transcript that a run accepts and `fedray data` points to."""
    content = put("clients.tsv", CLIENTS.replace("one", text))
    return Case(f"text: {name}", ("clients: 1 of 2 transcripts hold", *says), content, command=DATA, status=0)


def table(name: str, content: str | bytes, *says: str) -> Case:
    return Case(f"table: {name}", ("clients.tsv", *says), put("clients.tsv", content), data=True)


def audiofolder(name: str, files: dict[str, str | bytes], *says: str, options: str = "") -> Case:
    """The case of a folder of Hugging Face with these files besides a.wav and b.wav."""

    def make(folder: Path) -> None:
        put("config.yaml", SET.replace("who}", f"who{options}}}"))(folder)
        for path, content in ({"a.wav": sound(), "b.wav": sound()} | files).items():
            (folder / "set" / path).parent.mkdir(parents=True, exist_ok=True)
            put(f"set/{path}", content)(folder)

    return Case(f"Hugging Face: {name}", says, make, data=True)


def jsonl(*rows: dict[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def by_class(name: str, files: dict[str, bytes], *says: str) -> Case:
    """The case of audio in folders by class."""
    text = CONFIG.replace("corpus: tsv", "corpus: folders").replace("root: .", "root: set").partition("  options:")[0]
    task = "task: {kind: classification}\nmodel: {kind: crnn}\nalgorithm: {kind: fedavg}\ncohort: {size: 1}\n"

    def make(folder: Path) -> None:
        put("config.yaml", text + "  clients: {by: iid, count: 2}\n" + task)(folder)
        for path, content in files.items():
            (folder / "set" / path).parent.mkdir(parents=True, exist_ok=True)
            put(f"set/{path}", content)(folder)

    return Case(f"folders by class: {name}", says, make, data=True)


def options(name: str, line: str, *says: str) -> Case:
    given = CONFIG.replace("    text_column: text\n", f"    text_column: text\n    {line}\n")
    return Case(f"text: {name}", says, put("config.yaml", given), data=True)


def kaldi(name: str) -> Callable[[Path], object]:
    files = {"wav.scp": "u0 a0.wav\nu1 b0.wav\n", "text": "u0 one\nu1 two\n", "utt2spk": "u0 ann\nu1 bob\n"}

    def make(folder: Path) -> None:
        (folder / "kaldi").mkdir()
        for file, content in (files | {name: STUB}).items():
            put(f"kaldi/{file}", content)(folder)

    return both(lists("kaldi", "kaldi", ""), lambda folder: (folder / "kaldi").unlink(), make)


CASES: tuple[Case, ...] = (
    heard("a character lost in a wrong encoding", "caf\ufffd", "U+FFFD", "Write the table again"),
    heard("UTF-8 read as Latin-1", "cafÃ©", "read as Latin-1", "cp1252"),
    heard("Cyrillic read as Latin-1", "Ð´Ð°", "read as Latin-1"),
    heard("an entity of HTML", "a &amp; b", "HTML", "html.unescape"),
    heard("a numbered entity of HTML", "it&#39;s", "HTML"),
    heard("a tag of HTML", "one<br>two", "HTML"),
    heard("an escaped letter", "caf\\u00e9", "escaped characters"),
    heard("an escaped line break", "one\\n two", "escaped characters"),
    heard("a soft hyphen", "super\u00admarket", "cannot be seen", "data.options.punctuation=false"),
    heard("a zero-width space", "one\u200btwo", "cannot be seen"),
    heard("a byte order mark inside", "\ufeffone", "cannot be seen"),
    heard("a mark of direction", "one\u200f", "cannot be seen"),
    heard("a word joiner", "one\u2060two", "cannot be seen"),
    heard("letters and their marks apart", "cafe\u0301", "Unicode NFC"),
    heard("a character of one font", "one\ue000", "private use"),
    heard("a tag of HTML around a word", "<i>one</i>", "HTML"),
    options("a language by its name", "language: Uzbek", "data.options.language", "a code such as uz", "'Uzbek'"),
    options("a language that is a number", "language: 3", "data.options.language"),
    options("punctuation that is a word", "punctuation: keep", "data.options.punctuation"),
    Case("text: nothing is left of it without punctuation", ("clients.tsv:2", "the text is empty"),
         both(put("clients.tsv", CLIENTS.replace("one", "...")),
              put("config.yaml", CONFIG.replace("text_column: text", "text_column: text\n    punctuation: false"))),
         data=True),
    table("commas in place of tabs", CLIENTS.replace("\t", ","), "divided by ','", "set delimiter"),
    table("semicolons in place of tabs", CLIENTS.replace("\t", ";"), "divided by ';'", "set delimiter"),
    table("a name with a space behind it", CLIENTS.replace("path", "path ", 1), "'path '"),
    table("quoted as CSV, over two lines", CLIENTS.replace("one", '"one\nmore"'), ":2", "is not closed on this line"),
    table("a spreadsheet", b"PK\x03\x04\x14\x00\x06\x00\xff\xfe", "a zip archive or a spreadsheet", "export it"),
    table("compressed with gzip", b"\x1f\x8b\x08\x00\xff\xfe", "gunzip"),
    table("compressed with bzip2", b"BZh91AY&SY\xff\xfe", "bunzip2"),
    table("compressed with xz", b"\xfd7zXZ\x00\xff\xfe", "unxz"),
    table("compressed with zstd", b"(\xb5/\xfd\xff\xfe", "unzstd"),
    table("a 7z archive", b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    table("a rar archive", b"Rar!\x1a\x07\x01\x00\xff", "a rar archive"),
    table("Parquet", b"PAR1\x15\x04\xff\xfe", "data.corpus=huggingface"),
    table("a database", b"SQLite format 3\x00\xff\xfe", "a database of SQLite"),
    table("an old document", b"\xd0\xcf\x11\xe0\xa1\xb1", "export it as text"),
    table("a PDF", b"%PDF-1.7\n%\xe2\xe3", "a PDF"),
    table("a FLAC file", sound(form="FLAC"), "but audio", "name the list"),
    Case("configuration: a Git LFS stub", ("config.yaml", "git lfs pull"), put("config.yaml", STUB), data=True),
    Case("SpeechBrain's JSON: a Git LFS stub", ("list.json", "git lfs pull"), lists("speechbrain", "list.json", STUB),
         data=True),
    Case("JSON lines: a Git LFS stub", ("list.jsonl", "git lfs pull"), lists("nemo", "list.jsonl", STUB), data=True),
    Case("JSON lines: compressed", ("list.jsonl", "gunzip"), lists("nemo", "list.jsonl", b"\x1f\x8b\x08\x00\xff"),
         data=True),
    Case("SpeechBrain: a Git LFS stub", ("list.csv", "git lfs pull"),
         lists("speechbrain", "list.csv", STUB), data=True),
    Case("SpeechBrain: semicolons", ("list.csv", "divided by ';'"),
         lists("speechbrain", "list.csv", SB.replace(",", ";")), data=True),
    Case("JSON lines: a list in place of lines", ("list.jsonl:1", "must be an object"),
         lists("nemo", "list.jsonl", f"[{NEMO.strip()}]\n"), data=True),
    Case("Kaldi: wav.scp is a Git LFS stub", ("wav.scp", "git lfs pull"), kaldi("wav.scp"), data=True),
    Case("Kaldi: text is a Git LFS stub", ("text", "git lfs pull"), kaldi("text"), data=True),
    audiofolder("no file_name in metadata", {"metadata.csv": "name,text,who\na.wav,one,ann\n"}, "'file_name'"),
    audiofolder("metadata without rows", {"metadata.csv": "file_name,text,who\n"}, "lists no audio"),
    audiofolder("metadata of a file that is not there", {"metadata.csv": META.replace("b.wav", "c.wav")},
                "metadata.csv:3", "c.wav: missing"),
    audiofolder("an empty file_name", {"metadata.csv": META.replace("b.wav", "")}, "metadata.csv:3", "is empty"),
    audiofolder("a file_name twice", {"metadata.csv": META.replace("b.wav", "a.wav")}, "metadata.csv:3", "already in"),
    audiofolder("an empty text", {"metadata.csv": META.replace("two", "")}, "metadata.csv:3", "the text is empty"),
    audiofolder("a column of metadata that is not there", {"metadata.csv": META.replace("who", "by")},
                "no column 'who'"),
    audiofolder("two files of metadata", {"metadata.csv": META, "metadata.jsonl": jsonl()}, "keep one of them"),
    audiofolder("metadata that is no JSON", {"metadata.jsonl": "{\n"}, "metadata.jsonl:1", "is not JSON"),
    audiofolder("metadata with a list in a line", {"metadata.jsonl": "[1]\n"}, "metadata.jsonl:1", "must be an object"),
    audiofolder("a file_name that is a list",
                {"metadata.jsonl": jsonl({"file_name": ["a.wav"], "text": "x", "who": "y"})},
                "metadata.jsonl:1", "file_name must be text"),
    audiofolder("metadata in Latin-1", {"metadata.csv": META.replace("one", "é").encode("latin-1")},
                "is not UTF-8 text"),
    audiofolder("metadata with a field too many", {"metadata.csv": META.replace("one", "one,two")}, "metadata.csv:2",
                "the row has 4 fields"),
    audiofolder("metadata.csv is a Git LFS stub", {"metadata.csv": STUB}, "git lfs pull"),
    audiofolder("metadata.jsonl is a Git LFS stub", {"metadata.jsonl": STUB}, "git lfs pull"),
    audiofolder("metadata.parquet is a Git LFS stub", {"metadata.parquet": STUB}, "git lfs pull"),
    audiofolder("metadata.parquet cut short", {"metadata.parquet": b"PAR1"}, "cannot be read as Parquet"),
    audiofolder("metadata.parquet with a column named in Latin-1", {"metadata.parquet": LATIN}, "metadata.parquet"),
    audiofolder("Parquet with a column named in Latin-1", {"train.parquet": LATIN}, "train.parquet"),
    audiofolder("metadata.parquet without file_name", {"metadata.parquet": parquet(text=["x"], who=["y"])},
                "'file_name'"),
    audiofolder("audio of metadata that is a Git LFS stub", {"metadata.csv": META, "a.wav": STUB},
                "a.wav", "git lfs pull"),
    audiofolder("a split that is not there", {"metadata.csv": META}, "no split 'best'", options=", train: [best]"),
    audiofolder("Parquet that is a Git LFS stub", {"train.parquet": STUB}, "train.parquet", "git lfs pull"),
    audiofolder("Arrow that is a Git LFS stub", {"train.arrow": STUB}, "train.arrow", "git lfs pull"),
    audiofolder("dataset_dict.json is a Git LFS stub", {"dataset_dict.json": STUB},
                "dataset_dict.json", "git lfs pull"),
    audiofolder("all in hidden folders", {".cache/metadata.csv": META}, "holds no dataset_dict.json"),
    by_class("all audio of a class is hidden", {"no/.trash/a.wav": sound(), "yes/b.wav": sound()},
             "no", "holds no audio"),
    by_class("hidden folders alone", {".git/a.wav": sound()}, "holds no folders"),
)  # fmt: skip
