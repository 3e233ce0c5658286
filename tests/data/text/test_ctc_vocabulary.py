"""Tokens of CTC checkpoints: as transformers' Wav2Vec2CTCTokenizer reads and writes them, with the blank first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedray.data.text.ctc_vocabulary import CTCVocabulary
from fedray.data.text.tokenisers import BLANK

transformers = pytest.importorskip("transformers")
from tests.encoders import write_vocabulary  # noqa: E402 - it needs transformers


@pytest.mark.parametrize("pad_last", [False, True])
def test_texts_are_those_of_transformers(pad_last: bool, tmp_path: Path) -> None:
    folder = write_vocabulary(tmp_path, "ABC", pad_last)
    ours = CTCVocabulary.load(folder / "vocab.json")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert ours.tokens[0] == BLANK and ours.places[0] == theirs.pad_token_id and ours.size == len(theirs.get_vocab())
    ids = ours.encode("AB CA")
    assert [ours.places[one] for one in ids] == theirs("AB CA").input_ids
    assert ours.decode(ids) == "AB CA"
    frames = [0, ids[0], ids[0], 0, ids[0], *ids[1:], 0]  # as greedy search sees them
    collapsed = [one for at, one in enumerate(frames) if at == 0 or frames[at - 1] != one]
    assert ours.decode(collapsed) == theirs.decode([ours.places[one] for one in frames]) == "AAB CA"
    special = [ours.tokens.index(token) for token in ("<unk>", "<s>")]
    assert ours.decode([*special, *ids]) == "AB CA"


def test_a_case_that_the_tokens_lack(tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path, "ABC") / "vocab.json"
    spoken = CTCVocabulary.load(path, ["ab ca", "b"])
    assert spoken.fold == "lower" and spoken.decode(spoken.encode("ab ca")) == "ab ca"
    mixed = CTCVocabulary.load(path, ["Ab ca"])
    assert mixed.fold is None
    with pytest.raises(ValueError, match="no token for 'b'"):
        mixed.encode("Ab")
    assert mixed.decode(mixed.encode("Ab", "leave_out")) == "A"
    lower = CTCVocabulary.load(write_vocabulary(tmp_path, "abc") / "vocab.json", ["AB"])
    assert lower.fold == "upper" and lower.decode(lower.encode("AB")) == "AB"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"eng": {"<pad>": 0}, "fra": {"<pad>": 0}}, "holds the tokens of several languages"),
        ({"a": 0, "b": 1}, "has no <pad>, the padding"),
        ({"<pad>": 0, "b": 2}, "is not an object of tokens and their places"),
        ({"<pad>": 0, "b": "1"}, "is not an object of tokens and their places"),
        ([1], "is not an object of tokens and their places"),
        ({"<pad>": 0, "|": 1, " ": 2}, "lists ' ' twice"),
    ],
)
def test_damaged_vocabularies_are_named(content: object, words: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"vocab.json: {words}"):
        CTCVocabulary.load(path)
