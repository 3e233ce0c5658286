"""Tables and lists of utterances that cannot be read."""

from __future__ import annotations

from pathlib import Path

from tests.bad_input.case import Case
from tests.bad_input.corpus import CLIENTS, CONFIG, lists, put

HEAD, *ROWS = CLIENTS.splitlines()
SB = "ID,duration,wav,spk_id,wrd\nu0,0.2,$data_root/a0.wav,ann,one\nu1,0.2,$data_root/b0.wav,bob,two\n"
NEMO = '{"audio_filepath": "a0.wav", "duration": 0.2, "text": "one", "speaker": "ann"}\n'


def table(name: str, content: str | bytes, *says: str) -> Case:
    """The case of a wrong table of the clients."""
    return Case(f"table: {name}", ("clients.tsv", *says), put("clients.tsv", content), data=True)


def options(name: str, words: str, *says: str) -> Case:
    """The case of wrong options of the reader `tsv`."""
    return Case(f"table: {name}", says, put("config.yaml", CONFIG.replace("    text_column: text\n", words)), data=True)


def speechbrain(name: str, content: str | bytes, *says: str) -> Case:
    return Case(f"SpeechBrain: {name}", ("list.csv", *says), lists("speechbrain", "list.csv", content), data=True)


def speechbrain_json(name: str, content: str | bytes, *says: str) -> Case:
    return Case(
        f"SpeechBrain's JSON: {name}", ("list.json", *says), lists("speechbrain", "list.json", content), data=True
    )


def nemo(name: str, content: str | bytes, *says: str) -> Case:
    return Case(f"JSON lines: {name}", ("list.jsonl", *says), lists("nemo", "list.jsonl", content), data=True)


def lhotse(name: str, content: str | bytes, *says: str) -> Case:
    return Case(f"Lhotse: {name}", ("cuts_train.jsonl", *says), lists("lhotse", "cuts_train.jsonl", content), data=True)


def cut(recording: str, more: str = "") -> str:
    return f'{{"id": "u", "start": 0, "duration": 0.2, "recording": {recording}{more}}}\n'


def kaldi(folder: Path, **files: str | bytes) -> None:
    whole = {"wav.scp": "u0 a0.wav\nu1 b0.wav\n", "utt2spk": "u0 ann\nu1 bob\n", "text": "u0 one\nu1 two\n"}
    (folder / "kaldi").mkdir()
    for name, content in {**whole, **files}.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / "kaldi" / name).write_bytes(data)
    lists("kaldi", "list.txt", "")(folder)
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("list.txt", "kaldi"))


CASES = (
    table("Latin-1", CLIENTS.replace("one", "café").encode("latin-1"), "is not UTF-8 text", "iconv"),
    table("UTF-16", CLIENTS.encode("utf-16"), "UTF-16", "iconv"),
    table("UTF-16 without a mark", CLIENTS.encode("utf-16-le"), "clients.tsv"),
    table("a field of 200,000 characters", CLIENTS + f"c0.wav\tcid\t{'x' * 200_000}\t0.2\n", ":4", "131072"),
    table("zero bytes", CLIENTS.replace("one", "o\0e"), ":2", "zero byte"),
    table("empty", "", "is empty"),
    table("a header alone", HEAD + "\n", "lists no utterances"),
    table("blank lines alone", "\n\n\n", "clients.tsv"),
    table("ends of lines of old Macs", CLIENTS.replace("\n", "\r").replace("a0", "a1"), ":2", "missing"),
    table(
        "a mark and a missing column",
        "\ufeff" + CLIENTS.replace("path", "file", 1),
        "no column 'path': set path_column in",
    ),
    table("a missing column", CLIENTS.replace("speaker", "reader", 1), "no column 'speaker'", "path"),
    table("a missing field", CLIENTS + "c0.wav\tcid\n", ":4", "the row has 2 fields"),
    table("two columns of one name", CLIENTS.replace("seconds", "text", 1), ":1", "'text'", "two columns"),
    table("an empty id", f"{HEAD}\n\tann\tone\t0.2\n", ":2", "is empty"),
    table("a row twice", CLIENTS + ROWS[0] + "\n", ":4", "is already in"),
    table(
        "three problems",
        f"{CLIENTS}no.wav\tann\t\t0.2\n{ROWS[0]}\n",
        "3 problems",
        ":5",
        "already",
        "text is empty",
        "no.wav",
    ),
    table("a length that is a word", CLIENTS.replace("0.2", "long"), ":2", "seconds must be a number"),
    table("a length of nan", CLIENTS.replace("0.2", "nan"), ":2", "seconds must be a number"),
    table("a length of 1e300", CLIENTS.replace("0.2", "1e300"), ":2", "below 1e9"),
    table("a negative length", CLIENTS.replace("0.2", "-1"), ":2", "seconds must be a number"),
    table("a path with a zero byte", f"{HEAD}\na\0.wav\tann\tone\t0.2\n", ":2", "zero byte"),
    table("a Git LFS stub", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
    table("a sound in place of the table", b"RIFF\x24\x08\x00\x00WAVEfmt \xff\xfe\x80", "is not UTF-8 text"),
    Case(
        "table: a folder",
        ("clients.tsv", "is a folder"),
        lambda folder: [(folder / "clients.tsv").unlink(), (folder / "clients.tsv").mkdir()],
        data=True,
    ),
    Case(
        "table: not there",
        ("clients.tsv", "does not exist"),
        lambda folder: (folder / "clients.tsv").unlink(),
        data=True,
    ),
    Case(
        "table: a named pipe",
        ("clients.tsv", "named pipe"),
        lambda folder: [(folder / "clients.tsv").unlink(), __import__("os").mkfifo(folder / "clients.tsv")],
        data=True,
    ),
    options("delimiter of two characters", "    delimiter: ',,'\n", "delimiter", "one character"),
    options("empty delimiter", "    delimiter: ''\n", "delimiter", "one character"),
    options("delimiter that ends lines", '    delimiter: "\\n"\n', "delimiter", "one character"),
    options(
        "no speakers, divided by speaker",
        "    text_column: text\n    speaker_column: null\n    seconds_column: wrong\n",
        "wrong",
    ),
    options("a column that is not there", "    text_column: words\n", "no column 'words'", "text_column"),
    options("a split of another name", "    split_column: speaker\n", "the split 'sue' is not known"),
    options("a file with an empty name", "    dev: ['']\n", "dev"),
    speechbrain("an unclosed quotation mark", SB.replace("one", '"one'), ":2", "quotation mark"),
    speechbrain("one column less in a row", SB.replace(",one", ""), ":2", "the row has 4 fields"),
    speechbrain("no ids", SB.replace("ID", "id", 1), "no column 'ID'"),
    speechbrain("Latin-1", SB.replace("one", "é").encode("latin-1"), "is not UTF-8 text"),
    Case("SpeechBrain: another ending", "end in .csv or .json", lists("speechbrain", "list.txt", SB), data=True),
    speechbrain_json("not JSON", "{", ":1", "not JSON"),
    speechbrain_json("a list", "[]", "must be one object"),
    speechbrain_json("nested 100,000 deep", "[" * 100_000, "nested too deep"),
    speechbrain_json(
        "lists as texts", '{"u": {"wav": "a0.wav", "duration": 0.2, "spk_id": "a", "wrd": ["x"]}}', "wrd", "['x']"
    ),
    speechbrain_json("Latin-1", '{"é": {}}'.encode("latin-1"), "is not UTF-8 text"),
    speechbrain_json("numbers of 5,000 digits", '{"u": {"wav": "a0.wav", "duration": %s}}' % ("9" * 5000), "list.json"),
    nemo("cut", NEMO + NEMO[:20], ":2", "not JSON"),
    nemo("an empty file", "", "lists no utterances"),
    nemo("a list", "[1, 2]\n", ":1", "must be an object"),
    nemo("a lone surrogate", NEMO.replace("one", "\\ud800"), ":1", "surrogate"),
    nemo("a list for a text", NEMO.replace('"one"', '["one"]'), ":1", "text", "['one']"),
    nemo("an object for a path", NEMO.replace('"a0.wav"', "{}"), ":1", "audio_filepath", "{}"),
    nemo("a missing key", NEMO.replace("text", "txt"), ":1", "the key 'text' is missing"),
    nemo("a length of NaN", NEMO.replace("0.2", "NaN"), ":1", "seconds must be a number"),
    nemo("a list for a length", NEMO.replace("0.2", "[0.2]"), ":1", "duration"),
    nemo("a truth value for a length", NEMO.replace("0.2", "true"), ":1", "duration"),
    nemo("nested 100,000 deep", "[" * 100_000 + "\n", ":1", "nested too deep"),
    nemo("Latin-1", NEMO.replace("one", "é").encode("latin-1"), "is not UTF-8 text"),
    nemo("UTF-16", NEMO.encode("utf-16"), "UTF-16"),
    nemo("a number of 5,000 digits", NEMO.replace("0.2", "9" * 5000), ":1"),
    nemo("a zero byte in a path", NEMO.replace("a0", "a\\u0000"), ":1", "zero byte"),
    lhotse("no object", "3\n", ":1", "must be a JSON object"),
    lhotse("sources of another shape", cut('{"id": "r", "sources": [3]}'), ":1", "sources"),
    lhotse("sources that are no list", cut('{"id": "r", "sources": 3}'), ":1", "sources"),
    lhotse("supervisions of another shape", cut("{}", ', "supervisions": [3]'), ":1", "supervisions"),
    lhotse(
        "a start that is a word",
        cut(
            '{"id": "r", "sources": [{"type": "file", "source": "a0.wav"}]}',
            ', "supervisions": [{"id": "u", "start": "x"}]',
        ),
        ":1",
        "start",
    ),
    lhotse("custom of another shape", cut("{}", ', "custom": 3'), ":1"),
    lhotse("nested 100,000 deep", "[" * 100_000 + "\n", ":1", "nested too deep"),
    lhotse("Latin-1", b'{"id": "\xe9"}\n', "is not UTF-8 text"),
    Case(
        "Kaldi: no wav.scp",
        ("wav.scp", "is missing"),
        lambda folder: [kaldi(folder), (folder / "kaldi" / "wav.scp").unlink()],
        data=True,
    ),
    Case(
        "Kaldi: Latin-1",
        ("text", "is not UTF-8 text"),
        lambda folder: kaldi(folder, text=b"u0 \xe9\nu1 two\n"),
        data=True,
    ),
    Case(
        "Kaldi: a pipe",
        ("wav.scp:1", "is a pipe"),
        lambda folder: kaldi(folder, **{"wav.scp": "u0 cat x |\nu1 b0.wav\n"}),
        data=True,
    ),
    Case(
        "Kaldi: a segment of nan",
        ("segments:1", "nan"),
        lambda folder: kaldi(folder, segments="u0 u0 nan 1\nu1 u1 0 0.1\n"),
        data=True,
    ),
    Case(
        "Kaldi: a line of utt2spk too few",
        ("utt2spk", "no line for 'u1'"),
        lambda folder: kaldi(folder, utt2spk="u0 ann\n"),
        data=True,
    ),
)
